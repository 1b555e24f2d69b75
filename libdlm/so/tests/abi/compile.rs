//! What a compiler sees: the headers as C and as C++, layout and numbers.

use std::fmt::Write;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::{have, text, top};

/// Macros with their values (libdlm-abi.md 1.4).
const NUMBERS: &[(&str, u64)] = &[
    ("DLM_LVB_LEN", 32),
    ("DLM_LOCKSPACE_LEN", 64),
    ("DLM_RESNAME_MAXLEN", 64),
    ("LKM_NLMODE", 0),
    ("LKM_CRMODE", 1),
    ("LKM_CWMODE", 2),
    ("LKM_PRMODE", 3),
    ("LKM_PWMODE", 4),
    ("LKM_EXMODE", 5),
    ("LKF_NOQUEUE", 0x1),
    ("LKF_CANCEL", 0x2),
    ("LKF_CONVERT", 0x4),
    ("LKF_VALBLK", 0x8),
    ("LKF_QUECVT", 0x10),
    ("LKF_IVVALBLK", 0x20),
    ("LKF_CONVDEADLK", 0x40),
    ("LKF_PERSISTENT", 0x80),
    ("LKF_NODLCKWT", 0x100),
    ("LKF_NODLCKBLK", 0x200),
    ("LKF_EXPEDITE", 0x400),
    ("LKF_NOQUEUEBAST", 0x800),
    ("LKF_HEADQUE", 0x1000),
    ("LKF_NOORDER", 0x2000),
    ("LKF_ORPHAN", 0x4000),
    ("LKF_ALTPR", 0x8000),
    ("LKF_ALTCW", 0x1_0000),
    ("LKF_FORCEUNLOCK", 0x2_0000),
    ("LKF_TIMEOUT", 0x4_0000),
    ("LKF_WAIT", 0x8000_0000),
    ("DLM_SBF_DEMOTED", 1),
    ("DLM_SBF_VALNOTVALID", 2),
    ("DLM_SBF_ALTMODE", 4),
    ("DLM_LSFL_TIMEWARN", 2),
    ("DLM_LSFL_FS", 4),
    ("DLM_LSFL_NEWEXCL", 8),
    ("ECANCEL", 0x10001),
    ("EUNLOCK", 0x10002),
    ("EINPROG", 0x10003),
];

/// Compiles a source, without making anything; what the compiler says if it refuses.
pub(crate) fn compile(compiler: &str, options: &[&str], source: &str) -> Result<(), String> {
    let language = if compiler == "g++" { "c++" } else { "c" };
    let include = top().join("include");
    let mut run = Command::new(compiler);
    run.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"]).arg(include);
    run.args(options).args(["-x", language, "-"]);
    run.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = run.spawn().expect("the compiler can be run");
    child.stdin.take().expect("piped").write_all(source.as_bytes()).expect("it reads");
    let done = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if done.status.success() { Ok(()) } else { Err(said) }
}

fn compiles(compiler: &str, options: &[&str], source: &str) {
    if let Err(said) = compile(compiler, options, source) {
        panic!("{compiler} {options:?}:\n{said}\nof\n{source}");
    }
}

#[test]
fn the_headers_compile_alone_and_together_in_c_and_cxx() {
    if !have("gcc", "headers") {
        return;
    }
    let sources = [
        "#include <libdlm.h>\n",
        "#include <dlm_ext.h>\n",
        "#include <dlm_ext.h>\n#include <libdlm.h>\n#include <libdlm.h>\n#include <dlm_ext.h>\n",
        "#include <errno.h>\n#include <libdlm.h>\n",
        "#include <libdlm.h>\n#include <errno.h>\n#include <sys/types.h>\n",
    ];
    for source in sources {
        for standard in ["-std=c99", "-std=gnu89", "-std=gnu17"] {
            compiles("gcc", &[standard], source);
            compiles("gcc", &[standard, "-pthread"], source);
        }
        compiles("gcc", &["-std=c11", "-pedantic"], source);
        if have("g++", "headers in C++") {
            for standard in ["-std=c++98", "-std=c++20"] {
                compiles("g++", &[standard], source);
                compiles("g++", &[standard, "-pthread"], source);
            }
        }
    }
}

#[test]
fn the_header_goes_with_those_of_the_kernel() {
    if !have("gcc", "kernel headers") {
        return;
    }
    for source in [
        "#include <linux/dlmconstants.h>\n#include <libdlm.h>\n",
        "#include <libdlm.h>\n#include <linux/dlmconstants.h>\n",
    ] {
        compiles("gcc", &[], source);
    }
    let hidden = "#define BUILDING_LIBDLM\n#include <linux/dlm.h>\n#include <libdlm.h>\n";
    compiles("gcc", &[], hidden);
}

#[test]
fn calls_of_threads_are_shown_to_threads_only() {
    if !have("gcc", "_REENTRANT") {
        return;
    }
    for call in [
        "dlm_pthread_init()",
        "dlm_ls_pthread_init(0)",
        "dlm_pthread_cleanup()",
        "lock_resource(\"\", 0, 0, 0)",
        "unlock_resource(0)",
    ] {
        let source = format!("#include <libdlm.h>\nint f(void) {{ return {call}; }}\n");
        compiles("gcc", &["-pthread"], &source);
        let hidden = compile("gcc", &[], &source);
        assert!(hidden.is_err_and(|said| said.contains("implicit declaration")), "{call}");
    }
}

#[test]
fn struct_layout_is_the_recorded_one() {
    if !have("gcc", "layout") {
        return;
    }
    let recorded = text("tests/abi/libdlm-layout.txt");
    let public = recorded.split("\n== ").find(|part| part.starts_with("public <libdlm.h>"));
    let mut source = String::from("#include <stddef.h>\n#include <libdlm.h>\n");
    let (mut kind, mut checks) = (String::new(), 0);
    for line in public.expect("the recorded layout").lines().skip(1) {
        let words: Vec<_> = line.split_whitespace().collect();
        let mut claim = |what: String, is: &str| {
            writeln!(source, "_Static_assert({what} == {is}, \"{what}\");").expect("memory");
            checks += 1;
        };
        match words[..] {
            ["struct", name, "sizeof", size, "align", align] => {
                kind = format!("struct {name}");
                claim(format!("sizeof({kind})"), size);
                claim(format!("_Alignof({kind})"), align);
            }
            [name, "sizeof", size, "align", align] => {
                claim(format!("sizeof({name})"), size);
                claim(format!("_Alignof({name})"), align);
            }
            [member, "off", offset, "size", size] => {
                claim(format!("offsetof({kind}, {member})"), offset);
                claim(format!("sizeof((({kind} *)0)->{member})"), size);
            }
            _ => {}
        }
    }
    assert!(checks >= 12, "the recorded layout has changed its form:\n{source}");
    compiles("gcc", &["-std=c11"], &source);
    let wrong = source.replace("offsetof(struct dlm_lksb, sb_lvbptr) == 16", "1 == 0");
    assert!(compile("gcc", &["-std=c11"], &wrong).is_err(), "the check can fail");
}

#[test]
fn numbers_are_the_recorded_ones() {
    if !have("gcc", "numbers") {
        return;
    }
    let mut source = String::from("#include <libdlm.h>\n");
    for (name, value) in NUMBERS {
        writeln!(source, "_Static_assert((unsigned long){name} == {value}UL, \"{name}\");")
            .expect("memory");
    }
    compiles("gcc", &["-std=c11"], &source);
}
