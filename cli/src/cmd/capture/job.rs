//! The job that is captured: it gets the terminal, the signals, and the last word.

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// A command to be run.
pub struct Job<'a> {
    pub program: &'a OsStr,
    pub arguments: &'a [OsString],
    /// Variables on top of ours.
    pub environment: Vec<(&'static str, OsString)>,
}

impl Job<'_> {
    /// Runs it to its end and returns what a shell would call its exit code.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(&self) -> io::Result<u8> {
        // Before the job is there, so that none gets lost. A terminal sends Ctrl-C and Ctrl-\ to the job itself.
        let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
        let mut command = Command::new(self.program);
        command.args(self.arguments).envs(self.environment.iter().map(|(key, value)| (key, value)));
        let mut child = command.spawn()?;
        let id = i32::try_from(child.id()).expect("process numbers fit");
        let handle = signals.handle();
        let forward = std::thread::spawn(move || {
            for signal in signals.forever().filter(|signal| ![SIGINT, SIGQUIT].contains(signal)) {
                let signal = nix::sys::signal::Signal::try_from(signal).expect("a known signal");
                // It may have ended meanwhile.
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), signal);
            }
        });
        let status = child.wait()?;
        handle.close();
        let _ = forward.join();
        Ok(code_of(status))
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
