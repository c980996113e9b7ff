//! Reading: checksums, headers, records.

use headrace_core::error::BadBatch;
use headrace_core::header::Header;
use headrace_core::walk::{self, Batches, Record, Records};
use headrace_core::{MAX_DECOMPRESSED, crc};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::buffer::Bytes;
use crate::errors::{instance, raised};

type HeaderTuple = (
    usize,
    usize,
    i64,
    i32,
    i16,
    i32,
    i64,
    i64,
    i64,
    i16,
    i32,
    i32,
);

fn tuple(h: &Header) -> HeaderTuple {
    (
        h.position,
        h.size,
        h.base_offset,
        h.leader_epoch,
        h.attributes,
        h.last_offset_delta,
        h.base_timestamp,
        h.max_timestamp,
        h.producer_id,
        h.producer_epoch,
        h.base_sequence,
        h.count,
    )
}

#[pyfunction]
#[pyo3(signature = (data, value = 0))]
pub fn crc32c(py: Python<'_>, data: Bytes, value: u32) -> u32 {
    data.light(py, |data| crc::crc32c_from(value, data))
}

#[pyfunction]
#[pyo3(signature = (data, *, keys = false, max_bytes = MAX_DECOMPRESSED))]
pub fn check_batch(
    py: Python<'_>,
    data: Bytes,
    keys: bool,
    max_bytes: usize,
) -> PyResult<HeaderTuple> {
    let check = |data: &[u8]| walk::check_batch(data, keys, max_bytes);
    let checked = if keys {
        data.heavy(py, check)
    } else {
        data.light(py, check)
    };
    checked
        .map(|header| tuple(&header))
        .map_err(|e| raised(py, &e))
}

#[pyfunction]
#[pyo3(signature = (data, *, crc = true))]
pub fn scan(
    py: Python<'_>,
    data: Bytes,
    crc: bool,
) -> PyResult<(Vec<HeaderTuple>, usize, Option<Py<PyAny>>)> {
    let (headers, position, error) = data.light(py, |data| {
        let mut batches = Batches::new(data, crc);
        let mut headers = Vec::new();
        loop {
            match batches.step() {
                Ok(Some(header)) => headers.push(tuple(&header)),
                Ok(None) => return (headers, batches.position, None),
                Err(e) => return (headers, batches.position, Some(e)),
            }
        }
    });
    Ok((
        headers,
        position,
        error.map(|e| instance(py, &e)).transpose()?,
    ))
}

#[pyfunction]
pub fn slice_batches(
    py: Python<'_>,
    data: Bytes,
    start_offset: i64,
    end_offset: i64,
) -> PyResult<(usize, usize, i64, Option<Py<PyAny>>)> {
    let run = data.light(py, |data| {
        walk::slice_batches(data, start_offset, end_offset)
    });
    let error = run.error.map(|e| instance(py, &e)).transpose()?;
    Ok((run.start, run.end, run.next_offset, error))
}

#[pyfunction(name = "walk")]
#[pyo3(signature = (data, *, max_bytes = MAX_DECOMPRESSED))]
pub fn walk_records(py: Python<'_>, data: Bytes, max_bytes: usize) -> PyResult<()> {
    data.heavy(py, |data| walk::walk(data, max_bytes))
        .map_err(|e| raised(py, &e))
}

#[pyfunction]
#[pyo3(signature = (data, timestamp, start_offset = 0, *, max_bytes = MAX_DECOMPRESSED))]
pub fn find_timestamp(
    py: Python<'_>,
    data: Bytes,
    timestamp: i64,
    start_offset: i64,
    max_bytes: usize,
) -> PyResult<Option<(i64, i64)>> {
    data.heavy(py, |data| {
        walk::find_timestamp(data, timestamp, start_offset, max_bytes)
    })
    .map_err(|e| raised(py, &e))
}

#[pyfunction]
#[pyo3(signature = (data, *, max_bytes = MAX_DECOMPRESSED))]
pub fn max_timestamp(
    py: Python<'_>,
    data: Bytes,
    max_bytes: usize,
) -> PyResult<Option<(i64, i64)>> {
    data.heavy(py, |data| walk::max_timestamp(data, max_bytes))
        .map_err(|e| raised(py, &e))
}

#[pyfunction]
#[pyo3(signature = (data, *, max_bytes = MAX_DECOMPRESSED))]
pub fn records<'py>(
    py: Python<'py>,
    data: Bytes,
    max_bytes: usize,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let data = data.slice();
    let mut scratch = Vec::new();
    let mut batches = Batches::new(data, true);
    let raise = |e: BadBatch| raised(py, &e);
    while let Some(header) = batches.step_whole().map_err(raise)? {
        let scratch = &mut scratch;
        let body = py.detach(|| walk::body(&header, data, max_bytes, scratch));
        for record in Records::new(&header, body.map_err(raise)?).map_err(raise)? {
            list.append(record_tuple(py, &header, &record.map_err(raise)?)?)?;
        }
    }
    Ok(list)
}

fn record_tuple<'py>(
    py: Python<'py>,
    header: &Header,
    record: &Record<'_>,
) -> PyResult<Bound<'py, PyTuple>> {
    let bytes = |field: Option<&[u8]>| field.map(|field| PyBytes::new(py, field));
    let headers = PyList::empty(py);
    for (key, value) in record.headers() {
        let key = PyString::new(py, &String::from_utf8_lossy(key));
        headers.append((key, bytes(value)))?;
    }
    (
        header.offset(record.offset_delta),
        header.timestamp(record.timestamp_delta),
        bytes(record.key),
        bytes(record.value),
        headers,
    )
        .into_pyobject(py)
}
