//! `BadBatch` as a Python exception.

use headrace_core::error;
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

create_exception!(
    headrace._kernel,
    BadBatch,
    PyValueError,
    "A batch that cannot be accepted; `kind` says why."
);

/// The exception object, with its `kind`.
pub fn instance(py: Python<'_>, error: &error::BadBatch) -> PyResult<Py<PyAny>> {
    let exception = py.get_type::<BadBatch>().call1((error.message.as_ref(),))?;
    exception.setattr("kind", error.kind.name())?;
    Ok(exception.unbind())
}

/// The exception to raise.
pub fn raised(py: Python<'_>, error: &error::BadBatch) -> PyErr {
    match instance(py, error) {
        Ok(exception) => PyErr::from_value(exception.into_bound(py)),
        Err(e) => e,
    }
}
