//! Where results go, and how a command ends.

use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

/// How a command ended without an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All is well.
    Fine,
    /// A result that is a failure (a difference, one bad file of several); it was already reported.
    Failed,
    /// The command line asked for something that is not there.
    Usage,
    /// The simulated job ran out of memory.
    OutOfMemory,
    /// As the job that was captured ended.
    Job(u8),
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> ExitCode {
        ExitCode::from(match ending {
            Ending::Fine => 0,
            Ending::Failed => 1,
            Ending::Usage => 2,
            Ending::OutOfMemory => 3,
            Ending::Job(code) => code,
        })
    }
}

/// A command line that is well formed but asks for what is not there (an unknown policy).
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Standard output.
pub struct Out {
    inner: BufWriter<io::Stdout>,
    /// The reader of a pipe has gone. Kept here because writers below put errors into words.
    pub pipe_closed: bool,
}

impl Out {
    /// Standard output, buffered.
    pub fn stdout() -> Self {
        Out { inner: BufWriter::new(io::stdout()), pipe_closed: false }
    }

    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.pipe_closed |= error.kind() == io::ErrorKind::BrokenPipe;
        }
        result
    }

    /// Prints one JSON document.
    pub fn json<T: Serialize>(&mut self, document: &T) -> anyhow::Result<()> {
        serde_json::to_writer_pretty(&mut *self, document).map_err(io::Error::from)?;
        writeln!(self)?;
        Ok(())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.inner.write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.inner.flush();
        self.note(result)
    }
}

/// True if some cause of the error is a closed pipe.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Text wrapped to the terminal (100 columns where there is none), each line after `indent` blanks.
pub fn paragraph(text: &str, indent: usize) -> String {
    let columns = width().unwrap_or(100).clamp(40, 100);
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used == 0 || used + 1 + length > columns {
            if used > 0 {
                lines.push('\n');
            }
            lines.push_str(&" ".repeat(indent));
            used = indent;
        } else {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines.push('\n');
    lines
}

/// Columns that a table may take: the terminal's, or `None` where the output is no terminal.
pub fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    Some(terminal_size::terminal_size().map_or(80, |(columns, _)| usize::from(columns.0)))
}

/// A progress bar on standard error. It shows itself only on a terminal, and only for at least `least` steps.
pub fn progress(total: u64, least: u64, what: &str) -> indicatif::ProgressBar {
    if total < least {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(total);
    let style = indicatif::ProgressStyle::with_template("{msg} {bar:30} {percent:>3} % {eta}")
        .expect("the template is well formed");
    bar.set_style(style);
    bar.set_message(what.to_string());
    bar
}
