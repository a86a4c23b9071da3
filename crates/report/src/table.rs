//! Tables of typed values for export. A column is defined once, with its name and the function that computes its value; every table format
//! iterates over these definitions.

use std::borrow::Cow;

use iotax_model::Run;

/// The type of the values in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Text.
    Text,
    /// A whole number, not negative.
    Whole,
    /// A number with decimals.
    Number,
    /// Yes or no.
    Flag,
    /// Milliseconds since 1970-01-01 UTC.
    Instant,
}

/// A value of its column's type, or unknown.
#[derive(Debug, Clone, PartialEq)]
pub enum CellValue {
    /// The value is unknown; it is never written as 0.
    Unknown,
    /// Text.
    Text(String),
    /// A whole number, not negative.
    Whole(u64),
    /// A number with decimals.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// Milliseconds since 1970-01-01 UTC.
    Instant(u64),
}

/// A Rust type for the values of a column. It determines the column's type.
pub trait Datum {
    /// Type of a column that holds values of this Rust type.
    const TYPE: ColumnType;

    /// Converts to a cell value of the type [`Datum::TYPE`].
    fn value(self) -> CellValue;
}

macro_rules! data {
    ($($datum:ty: $kind:ident($convert:expr);)*) => {
        $(impl Datum for $datum {
            const TYPE: ColumnType = ColumnType::$kind;

            fn value(self) -> CellValue {
                CellValue::$kind($convert(self))
            }
        })*
    };
}

data! {
    String: Text(String::from);
    &str: Text(str::to_owned);
    u64: Whole(u64::from);
    u32: Whole(u64::from);
    f64: Number(f64::from);
    bool: Flag(bool::from);
    UnixMs: Instant(|UnixMs(ms)| ms);
}

/// A point in time in milliseconds since 1970-01-01 UTC; it becomes an [`Instant`](ColumnType::Instant).
#[derive(Debug, Clone, Copy)]
pub struct UnixMs(pub u64);

impl<T: Datum> Datum for Option<T> {
    const TYPE: ColumnType = T::TYPE;

    fn value(self) -> CellValue {
        self.map_or(CellValue::Unknown, T::value)
    }
}

/// A column of a table with rows of type `R`: its name, and the function that computes its value.
pub struct Column<R> {
    name: Cow<'static, str>,
    of: ColumnType,
    get: Box<dyn Fn(&R) -> CellValue>,
}

/// Defines a column by its name, which includes the unit, and the function that computes its value.
pub fn column<R, D: Datum>(name: impl Into<Cow<'static, str>>, get: impl Fn(&R) -> D + 'static) -> Column<R> {
    Column { name: name.into(), of: D::TYPE, get: Box::new(move |row| get(row).value()) }
}

/// Defines columns for rows of one type: `columns!(Row<'_>, |row| "ios" => row.ios, ...)`.
#[macro_export]
macro_rules! columns {
    ($type:ty, |$row:pat_param| $($name:expr => $get:expr),* $(,)?) => {
        [$($crate::table::column::<$type, _>($name, |$row| $get)),*]
    };
}

/// A table with the values of all rows.
#[derive(Debug, Clone, PartialEq)]
pub struct DataTable {
    /// Column names and types.
    pub columns: Vec<(String, ColumnType)>,
    /// Rows, with one value per column.
    pub rows: Vec<Vec<CellValue>>,
}

impl DataTable {
    /// Computes the value of each column for each row.
    pub fn new<R>(columns: impl IntoIterator<Item = Column<R>>, rows: impl IntoIterator<Item = R>) -> Self {
        let columns: Vec<Column<R>> = columns.into_iter().collect();
        let values = |row: R| columns.iter().map(|column| (column.get)(&row)).collect();
        let rows = rows.into_iter().map(values).collect();
        Self {
            columns: columns.into_iter().map(|column| (column.name.into_owned(), column.of)).collect(),
            rows,
        }
    }
}

/// Returns the run's number in its store; `None` if the run was not stored.
#[must_use]
pub fn run_number(run: &Run) -> Option<u64> {
    u64::try_from(run.id).ok()
}

/// Converts nanoseconds to seconds.
#[must_use]
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
