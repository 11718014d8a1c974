//! The extraction guard as a program of its own: what a worker binary of your
//! own does when it is started as the guard.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencepost_worker::extract::guard::run()
}
