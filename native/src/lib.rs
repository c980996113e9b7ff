//! `headrace._kernel`: what `src/headrace/_kernel.pyi` says, and nothing else.

mod arrow;
mod batches;
mod buffer;
mod compaction;
mod errors;
mod json;
mod making;
mod patterns;
mod sharing;

#[pyo3::pymodule]
mod _kernel {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::arrow::{ArrowBatch, records_to_arrow};
    #[pymodule_export]
    use crate::batches::{
        check_batch, crc32c, find_timestamp, max_timestamp, records, scan, slice_batches,
        walk_records,
    };
    #[pymodule_export]
    use crate::compaction::{LatestOffsets, compact, drop_keys};
    #[pymodule_export]
    use crate::errors::BadBatch;
    #[pymodule_export]
    use crate::json::{arrow_to_json, json_to_arrow};
    #[pymodule_export]
    use crate::making::{alloc, build_batch, recompress, set_append_time};
    #[pymodule_export]
    use crate::patterns::{TooManyMatches, match_rows};
    #[pymodule_export]
    use crate::sharing::{copy_records, first_of_keys, key_hashes};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("MAX_DECOMPRESSED", headrace_core::MAX_DECOMPRESSED)
    }
}
