//! Python buffers as slices, and when to let go of the interpreter lock.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

/// Work on fewer bytes than this is done sooner than the lock is handed over and taken back: a thread that releases it
/// for a microsecond may wait for milliseconds to get it again.
const RELEASE_ABOVE: usize = 32 * 1024;

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
    /// The bytes. While the lock is released another thread could write to a bytearray, and that would be a data race:
    /// Headrace gives a buffer to one call at a time, and does not touch it until the call is back.
    pub fn slice(&self) -> &[u8] {
        match self.0.as_slice_ptr() {
            // SAFETY: the buffer is contiguous bytes, and pinned by the Py_buffer that self holds.
            Some(bytes) if self.0.len_bytes() > 0 => unsafe { bytes.as_ref() },
            _ => &[],
        }
    }

    fn slice_mut(&mut self) -> PyResult<&mut [u8]> {
        if self.0.readonly() {
            return Err(PyTypeError::new_err("the buffer is read-only"));
        }
        match self.0.as_slice_ptr() {
            // SAFETY: contiguous, writable and pinned, and this is the only slice made of it here.
            Some(mut bytes) if self.0.len_bytes() > 0 => Ok(unsafe { bytes.as_mut() }),
            _ => Ok(&mut []),
        }
    }

    /// Do work that is over soon (checksums, headers, plain records), without the lock if the bytes are many.
    pub fn light<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&[u8]) -> T + Send) -> T {
        let data = self.slice();
        if data.len() > RELEASE_ABOVE {
            py.detach(|| work(data))
        } else {
            work(data)
        }
    }

    /// Do work that may take long, like decompressing: always without the lock, for a few bytes can unpack to many.
    pub fn heavy<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&[u8]) -> T + Send) -> T {
        let data = self.slice();
        py.detach(|| work(data))
    }

    /// Write to the bytes, without the lock if they are many.
    pub fn write<T: Send>(
        &mut self,
        py: Python<'_>,
        work: impl FnOnce(&mut [u8]) -> T + Send,
    ) -> PyResult<T> {
        let data = self.slice_mut()?;
        if data.len() > RELEASE_ABOVE {
            Ok(py.detach(|| work(data)))
        } else {
            Ok(work(data))
        }
    }
}
