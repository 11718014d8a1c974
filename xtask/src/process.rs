//! Child processes that end when they are told to, and the signals that tell.
//!
//! Every child is the leader of a process group of its own: a Ctrl-C reaches
//! this process alone, which passes it on once to the whole group and waits.
//! What the children leave behind on the disk is theirs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::timeout;

/// nextest gives its tests ten seconds to end; after twice that a child hangs.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A signal asked the whole task to end.
#[derive(Debug, thiserror::Error)]
#[error("stopped by {name}")]
pub(crate) struct Stopped {
    name: &'static str,
    signal: Signal,
}

impl Stopped {
    /// What a shell calls the end by this signal.
    pub(crate) fn exit_code(&self) -> u8 {
        u8::try_from(self.signal.as_raw()).map_or(u8::MAX, |signal| 128 + signal)
    }
}

/// The signals that end a task; they no longer end the process by themselves.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
}

impl Signals {
    /// Takes the signals over; must be called inside a runtime.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn catch() -> Result<Self> {
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
            hangup: unix::signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    /// No signal is lost when this is dropped while it waits.
    pub(crate) async fn received(&mut self) -> Stopped {
        let (name, signal) = tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", Signal::INT),
            _ = self.terminate.recv() => ("SIGTERM", Signal::TERM),
            _ = self.hangup.recv() => ("SIGHUP", Signal::HUP),
        };
        Stopped { name, signal }
    }

    /// Does `work` until a signal comes, which is then the error.
    ///
    /// # Errors
    /// [`Stopped`], or that of `work`.
    pub(crate) async fn unless_stopped<T>(
        &mut self,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            done = work => done,
            stopped = self.received() => Err(stopped.into()),
        }
    }

    /// Runs a command that shows its output itself.
    ///
    /// # Errors
    /// When it cannot run, fails, or a signal comes; then it has ended too.
    pub(crate) async fn run(&mut self, command: Command) -> Result<()> {
        self.finish(command, Stdio::inherit()).await.map(|_| ())
    }

    /// Runs a command that shows its errors itself and gives its output.
    ///
    /// # Errors
    /// As [`run`](Self::run), or when the output is not text.
    pub(crate) async fn output(&mut self, command: Command) -> Result<String> {
        let output = self.finish(command, Stdio::piped()).await?;
        String::from_utf8(output).context("its output is not text")
    }

    /// Whether a command is there and succeeds; neither output is shown.
    ///
    /// # Errors
    /// [`Stopped`] only.
    pub(crate) async fn answers(&mut self, mut command: Command) -> Result<bool> {
        command.stderr(Stdio::null());
        match self.output(command).await {
            Err(error) if error.is::<Stopped>() => Err(error),
            answer => Ok(answer.is_ok()),
        }
    }

    async fn finish(&mut self, command: Command, stdout: Stdio) -> Result<Vec<u8>> {
        let line = line(&command);
        let mut child = spawn(command, stdout).with_context(|| format!("`{line}` does not run"))?;
        let (status, output) = tokio::select! {
            ended = drain(&mut child) => ended?,
            stopped = self.received() => {
                self.stop(child, stopped.signal).await?;
                return Err(stopped.into());
            }
        };
        if !status.success() {
            bail!("`{line}` failed: {status}");
        }
        Ok(output)
    }

    /// Passes a signal on and waits for the end; a second signal, or the limit, is a kill.
    async fn stop(&mut self, mut child: Child, signal: Signal) -> Result<()> {
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let group = group.context("the child has ended")?;
        kill_process_group(group, signal)?;
        let ended = tokio::select! {
            ended = timeout(STOP_LIMIT, child.wait()) => ended.is_ok(),
            _ = self.received() => false,
        };
        if !ended {
            kill_process_group(group, Signal::KILL)?;
            child.wait().await?;
        }
        Ok(())
    }
}

fn spawn(mut command: Command, stdout: Stdio) -> std::io::Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(stdout)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn drain(child: &mut Child) -> Result<(ExitStatus, Vec<u8>)> {
    let mut output = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut output).await?;
    }
    Ok((child.wait().await?, output))
}

/// A program at the workspace root, as if called by hand.
pub(crate) fn program(root: &Path, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root).args(arguments);
    // `cargo run` tells this process about its own package. Passed on, that
    // would make build scripts that look at it run again in turns.
    for (name, _) in std::env::vars_os() {
        if is_of_a_package(&name) {
            command.env_remove(name);
        }
    }
    command
}

fn is_of_a_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Cargo at the workspace root, as if called by hand.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    program(root, "cargo", arguments)
}

/// The command as a person would type it.
fn line(command: &Command) -> String {
    let command = command.as_std();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn a_failure_names_the_command_and_how_it_ended() {
        let mut signals = Signals::catch().unwrap();
        let error = signals.run(shell("exit 3")).await.unwrap_err();
        assert_eq!(error.to_string(), "`sh -c exit 3` failed: exit status: 3");
        let error = signals.run(Command::new("/nowhere")).await.unwrap_err();
        assert_eq!(error.to_string(), "`/nowhere` does not run");
        assert_eq!(signals.output(shell("echo seen")).await.unwrap(), "seen\n");
    }

    #[tokio::test]
    async fn a_stopped_child_takes_its_children_with_it() {
        let script = "sleep 600 & echo started; wait";
        let mut child = spawn(shell(script), Stdio::piped()).unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut started = [0; "started\n".len()];
        output.read_exact(&mut started).await.unwrap();

        let mut signals = Signals::catch().unwrap();
        signals.stop(child, Signal::TERM).await.unwrap();
        // The output ends when the last process that holds it does.
        let ended = timeout(LIMIT, output.read_to_end(&mut Vec::new())).await;
        ended.expect("the grandchild lives on").unwrap();
    }

    #[test]
    fn a_stop_has_the_exit_code_that_shells_give_it() {
        let name = "SIGTERM";
        let signal = Signal::TERM;
        let stopped = Stopped { name, signal };
        assert_eq!(stopped.exit_code(), 143);
        assert_eq!(stopped.to_string(), "stopped by SIGTERM");
    }

    #[test]
    fn only_what_cargo_says_of_this_package_is_kept_from_cargo() {
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(is_of_a_package(name.as_ref()), "{name}");
        }
        for name in ["CARGO_TARGET_DIR", "CARGO_HOME", "CARGO_TERM_COLOR"] {
            assert!(!is_of_a_package(name.as_ref()), "{name}");
        }
    }
}
