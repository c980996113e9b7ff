//! JSON to Arrow columns and back.

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::{Array, ArrayRef, StructArray, make_array};
use arrow_schema::{DataType, Field, Fields};
use headrace_core::json;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;
use std::sync::Arc;

use crate::arrow::ArrowBatch;

/// The pointer of a capsule, if that has the name that says what it points to.
fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &'static CStr) -> PyResult<*mut T> {
    let capsule = capsule.cast::<PyCapsule>()?;
    Ok(capsule.pointer_checked(Some(name))?.as_ptr().cast())
}

/// An array of another library; its memory lives as long as the array does.
pub fn array(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let (schema, data): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
        object.call_method0("__arrow_c_array__")?.extract()?;
    let schema = pointer::<FFI_ArrowSchema>(&schema, c"arrow_schema")?;
    let data = pointer::<FFI_ArrowArray>(&data, c"arrow_array")?;
    // SAFETY: the capsules hold what their names say, by the Arrow PyCapsule interface; from_raw moves the array out and
    // leaves a released one behind, and the schema is only borrowed.
    let found = unsafe { from_ffi(FFI_ArrowArray::from_raw(data), &*schema) };
    found
        .map(make_array)
        .map_err(|e| PyValueError::new_err(e.to_string()))
}

/// The fields of a schema of another library.
fn fields(object: &Bound<'_, PyAny>) -> PyResult<Fields> {
    let capsule = object.call_method0("__arrow_c_schema__")?;
    let schema = pointer::<FFI_ArrowSchema>(&capsule, c"arrow_schema")?;
    // SAFETY: as above; borrowed while the capsule lives.
    let kind = DataType::try_from(unsafe { &*schema });
    match kind.map_err(|e| PyValueError::new_err(e.to_string()))? {
        DataType::Struct(fields) => Ok(fields),
        other => Err(PyTypeError::new_err(format!("{other} is no schema"))),
    }
}

type Told = Vec<(usize, &'static str, String)>;

#[pyfunction]
#[pyo3(signature = (values, schema, columns = None, *, captured = false))]
pub fn json_to_arrow(
    py: Python<'_>,
    values: Bound<'_, PyAny>,
    schema: Bound<'_, PyAny>,
    columns: Option<Vec<String>>,
    captured: bool,
) -> PyResult<(ArrowBatch, Told)> {
    let (values, fields) = (array(&values)?, fields(&schema)?);
    let chosen = columns.as_deref();
    let decoded = py.detach(|| match values.data_type() {
        DataType::Binary if captured => {
            json::captured_to_arrow(values.as_binary::<i32>().iter(), &fields, chosen)
        }
        DataType::LargeBinary if captured => {
            json::captured_to_arrow(values.as_binary::<i64>().iter(), &fields, chosen)
        }
        DataType::Binary => json::json_to_arrow(values.as_binary::<i32>().iter(), &fields, chosen),
        DataType::LargeBinary => {
            json::json_to_arrow(values.as_binary::<i64>().iter(), &fields, chosen)
        }
        other => Err(json::Refused(format!("{other} is not a column of bytes"))),
    });
    let (rows, bad) = decoded.map_err(|e| PyValueError::new_err(e.to_string()))?;
    let told = bad
        .into_iter()
        .map(|bad| (bad.row, bad.reason.name(), bad.detail))
        .collect();
    Ok((ArrowBatch(rows), told))
}

#[pyfunction]
#[pyo3(signature = (rows, columns = None))]
pub fn arrow_to_json(
    py: Python<'_>,
    rows: Bound<'_, PyAny>,
    columns: Option<Vec<String>>,
) -> PyResult<ArrowBatch> {
    let found = array(&rows)?;
    let rows: &StructArray = found
        .as_struct_opt()
        .ok_or_else(|| PyTypeError::new_err("rows must be a record batch"))?;
    let wanted = match columns {
        None => (0..rows.num_columns()).collect(),
        Some(names) => names
            .iter()
            .map(|name| {
                let at = rows.fields().iter().position(|field| field.name() == name);
                at.ok_or_else(|| PyValueError::new_err(format!("there is no column {name:?}")))
            })
            .collect::<PyResult<Vec<usize>>>()?,
    };
    let json = py
        .detach(|| json::arrow_to_json(rows, &wanted))
        .map_err(|e| PyValueError::new_err(e.to_string()))?;
    let field: Fields = vec![Field::new("json", DataType::Binary, false)].into();
    let columns: Vec<ArrayRef> = vec![Arc::new(json)];
    StructArray::try_new(field, columns, None)
        .map(ArrowBatch)
        .map_err(|e| PyValueError::new_err(e.to_string()))
}
