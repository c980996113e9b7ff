//! Patterns over rows.

use arrow_array::cast::AsArray;
use headrace_core::patterns::{self, Refused};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::arrow::ArrowBatch;
use crate::buffer::Bytes;
use crate::json::array;

pyo3::create_exception!(headrace._kernel, TooManyMatches, PyValueError);

type Found = (
    ArrowBatch,
    ArrowBatch,
    ArrowBatch,
    ArrowBatch,
    ArrowBatch,
    ArrowBatch,
);

#[pyfunction]
pub fn match_rows(
    py: Python<'_>,
    program: Bytes,
    rows: Bound<'_, PyAny>,
    keys: Bound<'_, PyAny>,
    watermark: i64,
) -> PyResult<Found> {
    let (rows, keys) = (array(&rows)?, array(&keys)?);
    let rows = rows
        .as_struct_opt()
        .ok_or_else(|| PyTypeError::new_err("rows must be a record batch"))?;
    let keys = keys
        .as_list_opt::<i64>()
        .ok_or_else(|| PyTypeError::new_err("keys must be a large list"))?;
    let found = program.heavy(py, |program| patterns::run(program, rows, keys, watermark));
    let found = found.map_err(|refused| raised(py, &refused))?;
    Ok((
        ArrowBatch(found.outcomes),
        ArrowBatch(found.kept),
        ArrowBatch(found.progress),
        ArrowBatch(found.dead),
        ArrowBatch(found.late),
        ArrowBatch(found.unmeasured),
    ))
}

fn raised(py: Python<'_>, refused: &Refused) -> PyErr {
    match refused {
        Refused::Broken(why) => PyValueError::new_err(why.clone()),
        Refused::TooMany { row, .. } => {
            let error = TooManyMatches::new_err(refused.to_string());
            match error.value(py).setattr("row", row) {
                Ok(()) => error,
                Err(other) => other,
            }
        }
    }
}
