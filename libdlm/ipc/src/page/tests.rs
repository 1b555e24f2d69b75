//! A page set is taken only as the daemon makes it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::*;

fn page() -> (Page, OwnedFd) {
    Page::create(Geometry { submissions: 4, replies: 8, events: 2 }, 7).unwrap()
}

fn write(file: &OwnedFd, offset: u64, value: u32) {
    let file = File::from(file.try_clone().unwrap());
    file.write_all_at(&value.to_ne_bytes(), offset).unwrap();
}

#[test]
fn both_see_the_same_pages() {
    let (ours, file) = page();
    let theirs = Page::open(&file).unwrap();
    assert_eq!((theirs.geometry(), theirs.node()), (ours.geometry(), 7));
    assert_eq!((theirs.lease_until(), theirs.lost()), (NO_LEASE, None));
    ours.set_lease_until(5 << 32);
    ours.set_lost(LostReason::Shutdown);
    assert_eq!((theirs.lease_until(), theirs.lost()), (5 << 32, Some(LostReason::Shutdown)));
    assert_eq!(theirs.lost_at(), 5 << 32);
    ours.set_lease_notice(7);
    assert_eq!(theirs.lost_at(), (5 << 32) + 7);
    ours.set_lease_until(NO_LEASE);
    assert_eq!(theirs.lost_at(), NO_LEASE);
}

#[test]
fn the_header_has_these_bytes() {
    let (ours, file) = page();
    ours.set_lease_notice(9);
    let mut bytes = [0; 128];
    File::from(file).read_exact_at(&mut bytes, 0).unwrap();
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words[..7], [0x444c_4d31, 1, 4, 8, 2, 7, 0]);
    let second = [u32::MAX, u32::MAX, 0, 0, 9, 0];
    assert_eq!(words[16..22], second, "lease, loss and notice on the second line");
}

#[test]
fn the_file_cannot_change_its_size() {
    let (_ours, file) = page();
    let len = sys::file_bytes(file.as_fd()).unwrap();
    let file = File::from(file);
    assert!(file.set_len(len - 1).is_err() && file.set_len(len + 1).is_err());
    assert!(file.set_len(0).is_err());
}

#[test]
fn wrong_pages_are_refused() {
    let refused = |offset, value| {
        let (_ours, file) = page();
        write(&file, offset, value);
        Page::open(&file).map(drop).unwrap_err()
    };
    assert!(matches!(refused(0, 1), PageError::Version { magic: 1, version: 1 }));
    assert!(matches!(refused(4, 2), PageError::Version { version: 2, .. }));
    assert!(matches!(refused(8, 3), PageError::Geometry));
    assert!(matches!(refused(12, u32::MAX), PageError::Geometry));
    assert!(matches!(refused(16, 4), PageError::Size { .. }));
    assert!(matches!(refused(16, 1 << 16), PageError::Size { .. }));
    let short = sys::sealed_memfd(c"short", 4095).unwrap();
    assert!(matches!(Page::open(&short), Err(PageError::Size { found: 4095, .. })));
    let path = std::env::temp_dir().join(format!("dlm-ipc-page-{}", std::process::id()));
    let open = OwnedFd::from(File::create_new(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Page::open(&open), Err(PageError::NotSealed)));
    assert!(Page::create(Geometry { submissions: 3, ..Geometry::DEFAULT }, 1).is_err());
}

#[test]
#[should_panic(expected = "assertion failed")]
fn nobody_reaches_behind_the_pages() {
    let (ours, _file) = page();
    ours.cells(ours.geometry().bytes() - 8, 2);
}
