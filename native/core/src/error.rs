//! Why a batch cannot be accepted.

use std::borrow::Cow;
use std::fmt;

/// The reasons, each of which the broker may answer differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Truncated,
    Length,
    Magic,
    Crc,
    Several,
    Count,
    Codec,
    Decompress,
    TooBig,
    Record,
    NullKey,
}

impl Kind {
    /// The name that Python sees.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Truncated => "truncated",
            Kind::Length => "length",
            Kind::Magic => "magic",
            Kind::Crc => "crc",
            Kind::Several => "several",
            Kind::Count => "count",
            Kind::Codec => "codec",
            Kind::Decompress => "decompress",
            Kind::TooBig => "too_big",
            Kind::Record => "record",
            Kind::NullKey => "null_key",
        }
    }
}

/// A kind and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBatch {
    pub kind: Kind,
    pub message: Cow<'static, str>,
}

pub type Result<T> = std::result::Result<T, BadBatch>;

impl BadBatch {
    #[cold]
    pub fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        BadBatch {
            kind,
            message: message.into(),
        }
    }
}

impl fmt::Display for BadBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)
    }
}

impl std::error::Error for BadBatch {}
