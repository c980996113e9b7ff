//! Arrow columns, handed over by the Arrow PyCapsule interface.

use arrow_array::ffi::to_ffi;
use arrow_array::{Array, StructArray};
use headrace_core::{MAX_DECOMPRESSED, arrow};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::buffer::Bytes;
use crate::errors::raised;

/// One Arrow record batch: `pyarrow.record_batch(this)` and its like take it without a copy.
#[pyclass(module = "headrace._kernel", frozen)]
pub struct ArrowBatch(pub StructArray);

#[pymethods]
impl ArrowBatch {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // the interface allows to answer with what there is
        let (array, schema) =
            to_ffi(&self.0.to_data()).map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

#[pyfunction]
#[pyo3(signature = (data, start_offset = 0, end_offset = i64::MAX, *, max_bytes = MAX_DECOMPRESSED))]
pub fn records_to_arrow(
    py: Python<'_>,
    data: Bytes,
    start_offset: i64,
    end_offset: i64,
    max_bytes: usize,
) -> PyResult<ArrowBatch> {
    data.heavy(py, |data| {
        arrow::records_to_arrow(data, start_offset, end_offset, max_bytes)
    })
    .map(ArrowBatch)
    .map_err(|e| raised(py, &e))
}
