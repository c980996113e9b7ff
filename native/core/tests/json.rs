//! JSON to columns: every row whole or not at all, every bad one told.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use headrace_core::json::{BadRow, Reason, arrow_to_json, captured_to_arrow, json_to_arrow};

fn fields(columns: Vec<(&str, DataType)>) -> Fields {
    columns
        .into_iter()
        .map(|(name, kind)| Field::new(name, kind, true))
        .collect::<Vec<_>>()
        .into()
}

fn decode(values: &[&str], fields: &Fields) -> (StructArray, Vec<BadRow>) {
    json_to_arrow(values.iter().map(|v| Some(v.as_bytes())), fields, None).unwrap()
}

fn reason(value: &str, kind: DataType) -> Option<Reason> {
    let (_, bad) = decode(&[value], &fields(vec![("a", kind)]));
    bad.first().map(|bad| bad.reason)
}

#[test]
fn good_rows_are_there_whatever_lies_between_them() {
    let schema = fields(vec![
        ("id", DataType::Int64),
        (
            "tags",
            DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
        ),
        (
            "more",
            DataType::Struct(fields(vec![("x", DataType::Float64)])),
        ),
    ]);
    let (rows, bad) = decode(
        &[
            r#"{"id":1,"tags":["a","b"],"more":{"x":1.5}}"#,
            r#"{"id":2,"tags":["a",3],"more":{"x":1.5}}"#,
            r#"{"more":{"x":2,"y":[{}]},"tags":[],"id":3}"#,
            r#"{"id":4,"tags":["c"],"more":{"x":"no"}}"#,
            r#"{"id":5"#,
            r#"{"id":6,"tags":null,"more":null} "#,
            r#"{}"#,
        ],
        &schema,
    );
    let told: Vec<_> = bad.iter().map(|b| (b.row, b.reason)).collect();
    assert_eq!(
        told,
        [
            (1, Reason::WrongType),
            (3, Reason::WrongType),
            (4, Reason::NotJson)
        ]
    );
    assert_eq!(bad[1].detail, r#"column more.x: "no" is not Float64"#);
    let ids = rows.column(0).as_primitive::<Int64Type>();
    assert_eq!(
        ids.iter().collect::<Vec<_>>(),
        [Some(1), Some(3), Some(6), None]
    );
    let tags = rows.column(1).as_list::<i32>();
    assert_eq!(
        tags.values().as_string::<i32>().iter().collect::<Vec<_>>(),
        [Some("a"), Some("b")]
    );
    assert_eq!(tags.nulls().map_or(0, |n| n.null_count()), 2);
    let x = rows
        .column(2)
        .as_struct()
        .column(0)
        .as_primitive::<Float64Type>();
    assert_eq!(
        x.iter().collect::<Vec<_>>(),
        [Some(1.5), Some(2.0), None, None]
    );
}

#[test]
fn what_is_not_json_is_said_so_also_where_no_column_looks() {
    for value in [
        "",
        " ",
        "{",
        "}",
        "[",
        "{]",
        "{}{}",
        "{} x",
        "{\"a\":1,}",
        "{\"a\":1,,\"b\":2}",
        "{\"a\" 1}",
        "{a:1}",
        "{\"a\":NaN}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{\"a\":1e}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\u{1}\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\ud800\\u0041\"}",
        "{\"a\":tru}",
        "{\"a\":[1 2]}",
        "{\"a\":{\"b\":1 \"c\":2}}",
        "'a'",
        "\u{feff}{}",
        "{\"a\":\"",
        "{\"a\":\"\\",
        "{\"a\":\"\\u12",
    ] {
        for column in ["a", "other"] {
            let (rows, bad) = decode(&[value], &fields(vec![(column, DataType::Binary)]));
            assert_eq!(rows.len(), 0, "{value}");
            let expected = if column == "other" || bad[0].reason != Reason::WrongType {
                Reason::NotJson
            } else {
                Reason::WrongType
            };
            assert_eq!(bad[0].reason, expected, "{value}: {}", bad[0].detail);
        }
    }
    let broken = [Some(&b"{\"a\":\"\xff\"}"[..]), None];
    let (_, bad) = json_to_arrow(broken.into_iter(), &fields(vec![]), None).unwrap();
    assert_eq!(
        (bad[0].reason, bad[1].reason),
        (Reason::NotJson, Reason::NoValue)
    );
}

#[test]
fn deep_nesting_is_refused_and_not_recursed_into() {
    let deep = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
    assert_eq!(decode(&[&deep(127)], &fields(vec![])).0.len(), 1);
    for n in [128, 100_000] {
        assert_eq!(
            decode(&[&deep(n)], &fields(vec![])).1[0].reason,
            Reason::TooDeep
        );
    }
}

#[test]
fn numbers_fit_or_are_told() {
    assert_eq!(
        reason(r#"{"a":9223372036854775807}"#, DataType::Int64),
        None
    );
    assert_eq!(
        reason(r#"{"a":9223372036854775808}"#, DataType::Int64),
        Some(Reason::OutOfRange)
    );
    assert_eq!(
        reason(r#"{"a":128}"#, DataType::Int8),
        Some(Reason::OutOfRange)
    );
    assert_eq!(reason(r#"{"a":1e2}"#, DataType::Int8), None);
    assert_eq!(
        reason(r#"{"a":1.5}"#, DataType::Int64),
        Some(Reason::OutOfRange)
    );
    assert_eq!(
        reason(r#"{"a":"1"}"#, DataType::Int64),
        Some(Reason::WrongType)
    );
    assert_eq!(
        reason(r#"{"a":1e400}"#, DataType::Float64),
        Some(Reason::OutOfRange)
    );
    assert_eq!(
        reason(r#"{"a":1e40}"#, DataType::Float32),
        Some(Reason::OutOfRange)
    );
    assert_eq!(reason(r#"{"a":"NaN"}"#, DataType::Float64), None);
    assert_eq!(
        reason(r#"{"a":true}"#, DataType::Float64),
        Some(Reason::WrongType)
    );
    assert_eq!(reason(r#"{"a":12.345}"#, DataType::Decimal128(4, 2)), None);
    assert_eq!(
        reason(r#"{"a":123.45}"#, DataType::Decimal128(4, 2)),
        Some(Reason::OutOfRange)
    );
    assert_eq!(
        reason(r#"{"a":1e99}"#, DataType::Decimal128(4, 2)),
        Some(Reason::OutOfRange)
    );
    assert_eq!(
        reason(r#"{"a":"x"}"#, DataType::Decimal128(4, 2)),
        Some(Reason::WrongType)
    );
    let (rows, _) = decode(
        &[r#"{"a":"-0.05"}"#],
        &fields(vec![("a", DataType::Decimal128(4, 2))]),
    );
    assert_eq!(rows.column(0).as_primitive::<Decimal128Type>().value(0), -5);
}

#[test]
fn the_last_of_two_equal_names_counts() {
    let (rows, bad) = decode(
        &[
            r#"{"a":1,"a":[]}"#,
            r#"{"a":[],"a":1}"#,
            r#"{"a":1,"b":0,"a":2}"#,
        ],
        &fields(vec![("a", DataType::Int64)]),
    );
    assert_eq!(bad.iter().map(|b| b.row).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), 2);
}

#[test]
fn a_column_that_must_be_there_is_missed() {
    let strict: Fields = vec![Field::new("a", DataType::Int64, false)].into();
    let (rows, bad) = decode(&[r#"{"a":1}"#, r#"{"a":null}"#, "{}"], &strict);
    assert_eq!(rows.len(), 1);
    assert_eq!(
        bad.iter().map(|b| b.reason).collect::<Vec<_>>(),
        [Reason::Missing; 2]
    );
}

#[test]
fn rows_to_json_and_back_are_the_same() {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let entries = Field::new(
        "entries",
        DataType::Struct(
            vec![
                Field::new("key", DataType::Utf8, false),
                Field::new("value", DataType::Int32, true),
            ]
            .into(),
        ),
        false,
    );
    let schema = fields(vec![
        ("t", utc),
        ("n", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ("d", DataType::Date32),
        ("m", DataType::Decimal128(20, 3)),
        ("b", DataType::Binary),
        ("s", DataType::Utf8),
        ("f", DataType::Float64),
        ("k", DataType::Map(Arc::new(entries), false)),
        ("z", DataType::Boolean),
    ]);
    let text = concat!(
        r#"{"t":"2026-11-17T01:02:03.000004Z","n":"2026-11-17T01:02:03.000004","d":"1969-12-31","m":"-12.340","#,
        r#""b":"AQID","s":"\"\\\n\u0001é","f":1e100,"k":{"a":1,"b":null},"z":true}"#
    );
    let nothing =
        r#"{"t":null,"n":null,"d":null,"m":null,"b":null,"s":null,"f":null,"k":null,"z":null}"#;
    let (rows, bad) = decode(&[text, nothing], &schema);
    assert_eq!(bad, []);
    assert_eq!(
        rows.column(0)
            .as_primitive::<TimestampMicrosecondType>()
            .value(0),
        1_794_877_323_000_004
    );
    let columns: Vec<usize> = (0..9).collect();
    let json = arrow_to_json(&rows, &columns).unwrap();
    assert_eq!(str::from_utf8(json.value(0)).unwrap(), text);
    assert_eq!(str::from_utf8(json.value(1)).unwrap(), nothing);
}

#[test]
fn what_a_database_has_and_a_type_has_no_room_for_is_no_bad_row() {
    let schema = fields(vec![
        ("n", DataType::Decimal128(5, 1)),
        ("d", DataType::Date32),
        ("s", DataType::Utf8),
    ]);
    let values = [
        r#"{"n":"NAN","d":"2026-01-31Z","s":{"a":[1]}}"#,
        r#"{"n":"1.5","d":"+5877611-06-21Z","s":7}"#,
        r#"{"n":"x","d":null,"s":"t"}"#,
    ];
    let given = || values.iter().map(|v| Some(v.as_bytes()));
    let (rows, bad) = captured_to_arrow(given(), &schema, None).unwrap();
    assert_eq!(bad.iter().map(|bad| bad.row).collect::<Vec<_>>(), [2]);
    assert!(rows.column(0).is_null(0) && !rows.column(0).is_null(1));
    assert_eq!(rows.column(2).as_string::<i32>().value(0), r#"{"a":[1]}"#);
    assert_eq!(rows.column(2).as_string::<i32>().value(1), "7");
    let (_, bad) = json_to_arrow(given(), &schema, None).unwrap();
    assert_eq!(bad.len(), 3);
}
