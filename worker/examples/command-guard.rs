//! The command guard as a program of its own, for the worker's tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencepost_worker::command::guard::run()
}
