//! Filtering by key.

use std::collections::HashSet;

use headrace_core::MAX_DECOMPRESSED;
use headrace_core::compact::{self as core, Plan};
use headrace_core::latest::{self, Aborted};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::buffer::Bytes;
use crate::errors::raised;

fn aborted(transactions: Option<&Bound<'_, PyAny>>) -> PyResult<Aborted> {
    let Some(transactions) = transactions else {
        return Ok(Aborted::default());
    };
    let triples: PyResult<Vec<(i64, i64, i64)>> = transactions
        .try_iter()?
        .map(|item| item?.extract())
        .collect();
    Ok(Aborted::new(triples?))
}

#[pyclass(module = "headrace._kernel")]
pub struct LatestOffsets(latest::LatestOffsets);

#[pymethods]
impl LatestOffsets {
    #[new]
    fn new(max_keys: usize) -> Self {
        LatestOffsets(latest::LatestOffsets::new(max_keys))
    }

    #[pyo3(signature = (data, end_offset, *, aborted = None, max_bytes = MAX_DECOMPRESSED))]
    fn add(
        &mut self,
        py: Python<'_>,
        data: Bytes,
        end_offset: i64,
        aborted: Option<&Bound<'_, PyAny>>,
        max_bytes: usize,
    ) -> PyResult<i64> {
        let aborted = self::aborted(aborted)?;
        data.heavy(py, |data| self.0.add(data, end_offset, &aborted, max_bytes))
            .map_err(|e| raised(py, &e))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

#[pyfunction]
#[pyo3(signature = (data, latest, *, now_ms, delete_retention_ms, keep_empty = None, aborted = None,
                    max_bytes = MAX_DECOMPRESSED))]
#[allow(clippy::too_many_arguments)] // they are keywords in Python
pub fn compact<'py>(
    py: Python<'py>,
    data: Bytes,
    latest: PyRef<'py, LatestOffsets>,
    now_ms: i64,
    delete_retention_ms: i64,
    keep_empty: Option<&Bound<'py, PyAny>>,
    aborted: Option<&Bound<'py, PyAny>>,
    max_bytes: usize,
) -> PyResult<(Bound<'py, PyByteArray>, u64, u64)> {
    let keep_empty = match keep_empty {
        Some(offsets) => offsets
            .try_iter()?
            .map(|item| item?.extract())
            .collect::<PyResult<HashSet<i64>>>()?,
        None => HashSet::new(),
    };
    let plan = Plan {
        latest: &latest.0,
        now_ms,
        delete_retention_ms,
        keep_empty,
        aborted: self::aborted(aborted)?,
        max_bytes,
    };
    let outcome = data
        .heavy(py, |data| core::compact(data, &plan))
        .map_err(|e| raised(py, &e))?;
    let bytes = PyByteArray::new(py, &outcome.bytes);
    Ok((bytes, outcome.kept, outcome.dropped))
}

#[pyfunction]
#[pyo3(signature = (data, keys, *, max_bytes = MAX_DECOMPRESSED))]
pub fn drop_keys<'py>(
    py: Python<'py>,
    data: Bytes,
    keys: &Bound<'py, PyAny>,
    max_bytes: usize,
) -> PyResult<(Bound<'py, PyByteArray>, u64)> {
    let keys = keys
        .try_iter()?
        .map(|key| Ok(key?.cast::<PyBytes>()?.as_bytes().to_vec()))
        .collect::<PyResult<HashSet<Vec<u8>>>>()?;
    let outcome = data
        .heavy(py, |data| core::drop_keys(data, &keys, max_bytes))
        .map_err(|e| raised(py, &e))?;
    Ok((PyByteArray::new(py, &outcome.bytes), outcome.dropped))
}
