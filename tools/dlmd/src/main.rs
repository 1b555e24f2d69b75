//! `dlmd`, the lock manager daemon; also installed as `dlm_controld`. All of it is `dlm-net`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dlm_net::daemon::start::run(std::env::args_os())
}
