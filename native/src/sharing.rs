//! For share groups: order by key, copies of records.

use headrace_core::MAX_DECOMPRESSED;
use headrace_core::build::put_header;
use headrace_core::share::{self, Origin, Pick, Unsettled};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::buffer::Bytes;
use crate::errors::raised;

#[pyfunction]
#[pyo3(signature = (data, start_offset, end_offset, *, max_bytes = MAX_DECOMPRESSED))]
pub fn key_hashes<'py>(
    py: Python<'py>,
    data: Bytes,
    start_offset: i64,
    end_offset: i64,
    max_bytes: usize,
) -> PyResult<Bound<'py, PyByteArray>> {
    let hashes = data
        .heavy(py, |data| {
            share::key_hashes(data, start_offset, end_offset, max_bytes)
        })
        .map_err(|e| raised(py, &e))?;
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    Ok(PyByteArray::new(py, &bytes))
}

#[pyfunction]
pub fn first_of_keys(
    py: Python<'_>,
    hashes: Bytes,
    base_offset: i64,
    unsettled: Vec<Unsettled>,
    limit: usize,
) -> Vec<(i64, i64)> {
    hashes.light(py, |hashes| {
        let hash = |offset: i64| {
            let at = usize::try_from(offset.wrapping_sub(base_offset)).ok()?;
            let bytes = hashes.get(at.checked_mul(8)?..at.checked_mul(8)?.checked_add(8)?)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        share::first_of_keys(hash, &unsettled, limit)
    })
}

type PickFields<'py> = (i64, i64, Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>);

#[pyfunction]
#[pyo3(signature = (data, picks, *, now_ms, offset_header, timestamp_header, max_bytes = MAX_DECOMPRESSED))]
pub fn copy_records<'py>(
    py: Python<'py>,
    data: Bytes,
    picks: Vec<PickFields<'py>>,
    now_ms: i64,
    offset_header: &[u8],
    timestamp_header: &[u8],
    max_bytes: usize,
) -> PyResult<(Bound<'py, PyByteArray>, i32)> {
    let picks: Vec<Pick> = picks
        .into_iter()
        .map(|(first, last, headers)| {
            let mut header_bytes = Vec::new();
            for (name, value) in &headers {
                put_header(&mut header_bytes, name.as_bytes(), Some(value.as_bytes()));
            }
            Pick {
                first,
                last,
                header_count: headers.len(),
                header_bytes,
            }
        })
        .collect();
    let origin = Origin {
        offset: offset_header,
        timestamp: timestamp_header,
    };
    let (batch, count) = data
        .heavy(py, |data| {
            share::copy_records(data, &picks, now_ms, &origin, max_bytes)
        })
        .map_err(|e| raised(py, &e))?;
    Ok((PyByteArray::new(py, &batch), count))
}
