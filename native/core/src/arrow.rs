//! Records as Arrow columns.

use std::sync::Arc;

use arrow_array::types::ByteArrayType;
use arrow_array::{
    ArrayRef, BinaryArray, GenericByteArray, Int64Array, LargeBinaryArray, ListArray, StructArray,
    TimestampMillisecondArray,
};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields};

use crate::error::{BadBatch, Kind, Result};
use crate::header::Header;
use crate::walk::{Batches, Record, Records, body};

/// Data records (no control batches) with `start_offset <= offset < end_offset`.
pub fn records_to_arrow(
    data: &[u8],
    start_offset: i64,
    end_offset: i64,
    max: usize,
) -> Result<StructArray> {
    let mut columns = Columns::default();
    let mut scratch = Vec::new();
    let mut batches = Batches::new(data, false);
    while let Some(header) = batches.step_whole()? {
        let outside = header.last_offset() < start_offset || header.base_offset >= end_offset;
        if outside || header.is_control() {
            continue;
        }
        header.check_crc(data)?;
        let body = body(&header, data, max, &mut scratch)?;
        let records = Records::new(&header, body)?;
        columns.reserve(records.promised(), body.len());
        for record in records {
            let record = record?;
            let offset = header.offset(record.offset_delta);
            if (start_offset..end_offset).contains(&offset) {
                columns.push(&header, offset, &record)?;
            }
        }
    }
    columns
        .finish()
        .map_err(|e| BadBatch::new(Kind::TooBig, format!("cannot make Arrow columns: {e}")))
}

#[derive(Default)]
struct Columns {
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    keys: BytesColumn,
    values: BytesColumn,
    header_ends: Vec<i32>,
    header_keys: BytesColumn,
    header_values: BytesColumn,
}

impl Columns {
    /// Make room for so many records of so many bytes; both were measured, not told.
    fn reserve(&mut self, records: usize, bytes: usize) {
        self.offsets.reserve(records);
        self.timestamps.reserve(records);
        self.header_ends.reserve(records);
        self.keys.ends.reserve(records);
        self.values.ends.reserve(records);
        self.values.data.reserve(bytes);
    }

    #[inline]
    fn push(&mut self, header: &Header, offset: i64, record: &Record<'_>) -> Result<()> {
        self.offsets.push(offset);
        self.timestamps
            .push(header.timestamp(record.timestamp_delta));
        self.keys.push(record.key);
        self.values.push(record.value);
        for (key, value) in record.headers() {
            self.header_keys
                .push(Some(String::from_utf8_lossy(key).as_bytes()));
            self.header_values.push(value);
        }
        let end = i32::try_from(self.header_keys.len())
            .map_err(|_| BadBatch::new(Kind::TooBig, "too many record headers for one column"))?;
        self.header_ends.push(end);
        Ok(())
    }

    fn finish(self) -> std::result::Result<StructArray, ArrowError> {
        let header_fields: Fields = vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Binary, true),
        ]
        .into();
        let header_structs = StructArray::try_new(
            header_fields.clone(),
            vec![
                Arc::new(self.header_keys.small::<arrow_array::types::Utf8Type>()?) as ArrayRef,
                Arc::new(
                    self.header_values
                        .small::<arrow_array::types::BinaryType>()?,
                ),
            ],
            None,
        )?;
        let headers = ListArray::try_new(
            Arc::new(Field::new("item", DataType::Struct(header_fields), false)),
            OffsetBuffer::new(starting_at_zero(self.header_ends).into()),
            Arc::new(header_structs),
            None,
        )?;
        let timestamps = TimestampMillisecondArray::from(self.timestamps).with_timezone("UTC");
        let columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("offset", Arc::new(Int64Array::from(self.offsets)), false),
            ("timestamp", Arc::new(timestamps), false),
            ("key", self.keys.any_size()?, true),
            ("value", self.values.any_size()?, true),
            ("headers", Arc::new(headers), false),
        ];
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, array, nullable)| Field::new(*name, array.data_type().clone(), *nullable))
            .collect();
        let arrays = columns.into_iter().map(|(_, array, _)| array).collect();
        StructArray::try_new(fields.into(), arrays, None)
    }
}

/// Byte strings one after the other, and where each ends.
struct BytesColumn {
    data: Vec<u8>,
    ends: Vec<u64>,
    valid: NullBufferBuilder,
}

impl Default for BytesColumn {
    fn default() -> Self {
        BytesColumn {
            data: Vec::new(),
            ends: Vec::new(),
            valid: NullBufferBuilder::new(0),
        }
    }
}

impl BytesColumn {
    #[inline]
    fn push(&mut self, field: Option<&[u8]>) {
        match field {
            Some(bytes) => {
                self.data.extend_from_slice(bytes);
                self.valid.append_non_null();
            }
            None => self.valid.append_null(),
        }
        self.ends.push(self.data.len() as u64);
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    /// With offsets of 32 bits; an error if they are too few.
    fn small<T: ByteArrayType<Offset = i32>>(
        mut self,
    ) -> std::result::Result<GenericByteArray<T>, ArrowError> {
        if i32::try_from(self.data.len()).is_err() {
            return Err(ArrowError::OffsetOverflowError(self.data.len()));
        }
        let ends = starting_at_zero(self.ends.iter().map(|&end| end as i32));
        GenericByteArray::try_new(
            OffsetBuffer::new(ends.into()),
            Buffer::from_vec(self.data),
            self.valid.finish(),
        )
    }

    /// With offsets as large as they must be.
    fn any_size(mut self) -> std::result::Result<ArrayRef, ArrowError> {
        if i32::try_from(self.data.len()).is_ok() {
            let small: BinaryArray = self.small()?;
            return Ok(Arc::new(small));
        }
        let ends = starting_at_zero(self.ends.iter().map(|&end| end as i64));
        let large = LargeBinaryArray::try_new(
            OffsetBuffer::new(ends.into()),
            Buffer::from_vec(self.data),
            self.valid.finish(),
        )?;
        Ok(Arc::new(large))
    }
}

fn starting_at_zero<T: Default>(ends: impl IntoIterator<Item = T>) -> Vec<T> {
    std::iter::once(T::default()).chain(ends).collect()
}
