//! Names of resources: bytes with a length (D15).

use core::fmt;

/// Longest resource name, in bytes.
pub const RESOURCE_NAME_BYTES_MAX: usize = 64;
/// Longest lockspace name, in bytes.
pub const LOCKSPACE_NAME_BYTES_MAX: usize = 64;

/// Names up to this length lie inside the record instead of on the heap: most names are short, and a
/// record per held lock is what the daemon's memory consists of.
const INLINE_BYTES: usize = 14;

/// A resource name: 0 to 64 bytes of any value. Different bytes or lengths are different names.
#[derive(Clone)]
pub struct Name(Repr);

#[derive(Clone)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; INLINE_BYTES],
    },
    /// A thin pointer: a fat one would make every record larger.
    Heap(Box<Box<[u8]>>),
}

impl Name {
    /// A name of these bytes; `None` if they are more than [`RESOURCE_NAME_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > RESOURCE_NAME_BYTES_MAX {
            return None;
        }
        if bytes.len() > INLINE_BYTES {
            return Some(Self(Repr::Heap(Box::new(bytes.into()))));
        }
        let mut inline = [0; INLINE_BYTES];
        inline[..bytes.len()].copy_from_slice(bytes);
        Some(Self(Repr::Inline { len: bytes.len() as u8, bytes: inline }))
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// Maps of names are looked up by bytes: order and equality are those of the bytes.
impl core::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}
