//! How the library is linked (libdlm-abi.md 1.1).
//!
//! The C interface needs the exact SONAME. `nodelete`: a helper thread may still run in code of a
//! library that was unloaded. `now` and `relro`: as the original. The symbols are those marked
//! `no_mangle`, unversioned; nothing else is visible.

fn main() {
    for argument in ["-soname,libdlm.so.3", "-z,nodelete", "-z,now", "-z,relro"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
