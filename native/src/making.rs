//! Writing: memory to read into, new batches, the same batch in other clothes.

use headrace_core::build::{self, Content};
use headrace_core::codec::Codec;
use headrace_core::header::{self, CONTROL, Header, TRANSACTIONAL};
use headrace_core::{MAX_DECOMPRESSED, error};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyString};

use crate::buffer::Bytes;
use crate::errors::raised;

/// Larger bodies are compressed without the interpreter lock.
const RELEASE_ABOVE: usize = 4 * 1024;

#[pyfunction]
pub fn alloc(py: Python<'_>, size: isize) -> PyResult<Bound<'_, PyAny>> {
    if size < 0 {
        return Err(PyValueError::new_err("a size cannot be negative"));
    }
    // SAFETY: a null pointer asks for memory that is not set; the result is a new reference or null with an error set.
    unsafe {
        let array = ffi::PyByteArray_FromStringAndSize(std::ptr::null(), size);
        Bound::from_owned_ptr_or_err(py, array)
    }
}

#[pyfunction]
pub fn set_append_time(py: Python<'_>, mut batch: Bytes, timestamp: i64) -> PyResult<()> {
    batch
        .write(py, |batch| header::set_append_time(batch, timestamp))?
        .map_err(|e| raised(py, &e))
}

fn codec_and_level(codec: i64, level: Option<i32>) -> PyResult<Codec> {
    let known = Codec::from_id(codec)
        .ok_or_else(|| PyValueError::new_err(format!("codec {codec} is unknown")))?;
    match level {
        Some(level) if !known.takes_level(level) => Err(PyValueError::new_err(format!(
            "codec {codec} has no level {level}"
        ))),
        _ => Ok(known),
    }
}

type RecordFields<'py> = (
    i64,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Bound<'py, PyAny>,
);
type HeaderFields<'py> = (Bound<'py, PyString>, Option<Bound<'py, PyBytes>>);

/// The uncompressed records, how many, and the base and the largest timestamp.
struct Encoded {
    body: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

fn encode(records: &Bound<'_, PyAny>) -> PyResult<Encoded> {
    let py = records.py();
    let mut encoded = Encoded {
        body: Vec::new(),
        count: 0,
        base_timestamp: 0,
        max_timestamp: i64::MIN,
    };
    let mut header_bytes = Vec::new();
    for item in PyIterator::from_object(records)? {
        let (timestamp, key, value, headers): RecordFields<'_> = item?.extract()?;
        if encoded.count == 0 {
            encoded.base_timestamp = timestamp;
        }
        encoded.max_timestamp = encoded.max_timestamp.max(timestamp);
        header_bytes.clear();
        let mut header_count = 0;
        for header in headers.try_iter()? {
            let (name, value): HeaderFields<'_> = header?.extract()?;
            let name = name.encode_utf8()?;
            let value = value.as_ref().map(|v| v.as_bytes());
            build::put_header(&mut header_bytes, name.as_bytes(), value);
            header_count += 1;
        }
        let content = Content {
            key: key.as_ref().map(|k| k.as_bytes()),
            value: value.as_ref().map(|v| v.as_bytes()),
            header_count,
            header_bytes: &header_bytes,
        };
        let delta = timestamp.wrapping_sub(encoded.base_timestamp);
        build::put_record(&mut encoded.body, delta, encoded.count, &content)
            .map_err(|e| raised(py, &e))?;
        encoded.count = encoded
            .count
            .checked_add(1)
            .ok_or_else(|| PyValueError::new_err("too many records for one batch"))?;
    }
    if encoded.count == 0 {
        return Err(PyValueError::new_err("a batch needs at least one record"));
    }
    Ok(encoded)
}

#[pyfunction]
#[pyo3(signature = (records, *, codec = 0, level = None, base_offset = 0, leader_epoch = -1, producer_id = -1,
                    producer_epoch = -1, base_sequence = -1, transactional = false, control = false))]
#[allow(clippy::too_many_arguments)] // they are keywords in Python
pub fn build_batch<'py>(
    py: Python<'py>,
    records: &Bound<'py, PyAny>,
    codec: i64,
    level: Option<i32>,
    base_offset: i64,
    leader_epoch: i32,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    transactional: bool,
    control: bool,
) -> PyResult<Bound<'py, PyByteArray>> {
    let codec = codec_and_level(codec, level)?;
    let encoded = encode(records)?;
    let flag = |on: bool, bit: i16| if on { bit } else { 0 };
    let header = Header {
        position: 0,
        size: 0,
        base_offset,
        leader_epoch,
        crc: 0,
        attributes: flag(transactional, TRANSACTIONAL) | flag(control, CONTROL),
        last_offset_delta: encoded.count - 1,
        base_timestamp: encoded.base_timestamp,
        max_timestamp: encoded.max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count: encoded.count,
    };
    let finish = || {
        let mut out = Vec::new();
        build::put_batch(&header, codec, level, &encoded.body, &mut out)?;
        Ok(out)
    };
    let batch: error::Result<Vec<u8>> = if encoded.body.len() > RELEASE_ABOVE {
        py.detach(finish)
    } else {
        finish()
    };
    Ok(PyByteArray::new(py, &batch.map_err(|e| raised(py, &e))?))
}

#[pyfunction]
#[pyo3(signature = (batch, codec, level = None, *, max_bytes = MAX_DECOMPRESSED))]
pub fn recompress<'py>(
    py: Python<'py>,
    batch: Bytes,
    codec: i64,
    level: Option<i32>,
    max_bytes: usize,
) -> PyResult<Bound<'py, PyByteArray>> {
    let codec = codec_and_level(codec, level)?;
    let out = batch
        .heavy(py, |data| build::recompress(data, codec, level, max_bytes))
        .map_err(|e| raised(py, &e))?;
    Ok(PyByteArray::new(py, &out))
}
