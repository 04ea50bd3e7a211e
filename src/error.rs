//! What can go wrong on the whole way. Every error is ready to be shown: it names the place or the argument.

use girih_dsl::diagnostic::Diagnostic;
use std::fmt;
use std::path::{Path, PathBuf};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Clone, Debug)]
pub enum Error {
    /// The program is wrong, or wrong for these sizes: the diagnostics, and their text with the lines they speak of.
    Program {
        text: String,
        diagnostics: Vec<Diagnostic>,
    },
    /// An argument (an input, a size, a const, a scalar) does not fit.
    Argument {
        name: String,
        what: String,
    },
    /// A file cannot be read or written, or holds something else.
    File {
        path: PathBuf,
        what: String,
    },
    /// The run met a fault: an index outside a tensor, a value outside its declared range.
    Fault(String),
    /// The program cannot be lowered as asked.
    Refused(String),
    /// The simulator found the generated program wrong: a race, an access out of bounds.
    Simulator(String),
    /// The result is not what the definition says.
    Wrong(String),
    Runtime(girih_runtime::Error),
}

impl Error {
    pub fn argument(name: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Argument { name: name.into(), what: what.into() }
    }

    /// The message without the word "error" in front.
    pub fn text(&self) -> String {
        let text = self.to_string();
        text.strip_prefix("error: ").unwrap_or(&text).to_string()
    }

    pub fn file(path: &Path, what: impl Into<String>) -> Error {
        Error::File { path: path.to_path_buf(), what: what.into() }
    }
}

impl From<girih_runtime::Error> for Error {
    fn from(e: girih_runtime::Error) -> Error {
        Error::Runtime(e)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Program { text, .. } => f.write_str(text.trim_end()),
            Error::Argument { name, what } => write!(f, "error: {name}: {what}"),
            Error::File { path, what } => write!(f, "error: {}: {what}", path.display()),
            // What speaks of a place in the program has its code in front.
            Error::Fault(text) | Error::Refused(text) if text.starts_with("error[") => f.write_str(text),
            Error::Fault(text) | Error::Refused(text) => write!(f, "error: {text}"),
            Error::Simulator(text) => {
                write!(f, "error: the simulator found the generated program wrong: {text}")
            }
            Error::Wrong(text) => write!(f, "error: wrong result: {text}"),
            Error::Runtime(e) => write!(f, "error: {e}"),
        }
    }
}

impl std::error::Error for Error {}
