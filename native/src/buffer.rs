//! Python buffers as slices, and when to let go of the interpreter lock.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

/// Work on fewer bytes than this is done sooner than the lock is handed over and taken back: a thread that releases it
/// for a microsecond may wait for milliseconds to get it again.
const RELEASE_ABOVE: usize = 32 * 1024;
/// The same for work that decompresses or looks at every record.
const RELEASE_RECORDS_ABOVE: usize = 4 * 1024;

/// A contiguous buffer that stays where it is while this lives.
pub struct Bytes(PyBuffer<u8>);

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(&object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        Ok(Bytes(buffer))
    }
}

impl Bytes {
    /// The bytes. Another thread may write to a bytearray while the lock is released: Headrace never does that to a
    /// buffer it has given away, and a writer would change numbers that are checked before each use, not lengths of memory.
    pub fn slice(&self) -> &[u8] {
        match self.0.as_slice_ptr() {
            // SAFETY: the buffer is contiguous bytes, and pinned by the Py_buffer that self holds.
            Some(bytes) if self.0.len_bytes() > 0 => unsafe { bytes.as_ref() },
            _ => &[],
        }
    }

    /// The bytes, to be written.
    pub fn slice_mut(&mut self) -> PyResult<&mut [u8]> {
        if self.0.readonly() {
            return Err(PyTypeError::new_err("the buffer is read-only"));
        }
        match self.0.as_slice_ptr() {
            // SAFETY: contiguous, writable and pinned; the lock is held and this is the only slice made of it here.
            Some(mut bytes) if self.0.len_bytes() > 0 => Ok(unsafe { bytes.as_mut() }),
            _ => Ok(&mut []),
        }
    }

    /// Do light work (checksums, headers) on the bytes, without the lock if they are many.
    pub fn light<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&[u8]) -> T + Send) -> T {
        self.work(py, RELEASE_ABOVE, work)
    }

    /// Do work per record on the bytes, without the lock unless they are few.
    pub fn heavy<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&[u8]) -> T + Send) -> T {
        self.work(py, RELEASE_RECORDS_ABOVE, work)
    }

    fn work<T: Send>(
        &self,
        py: Python<'_>,
        above: usize,
        work: impl FnOnce(&[u8]) -> T + Send,
    ) -> T {
        let data = self.slice();
        if data.len() > above {
            py.detach(|| work(data))
        } else {
            work(data)
        }
    }
}
