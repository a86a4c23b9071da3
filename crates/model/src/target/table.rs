//! Conversion of targets to and from the table form of plan files and the store.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::layers::TargetTable;
use super::{Stack, TargetSpec};

impl TryFrom<TargetTable> for TargetSpec {
    type Error = String;

    fn try_from(mut table: TargetTable) -> Result<Self, String> {
        let layers = table.take_layers();
        let stack = match (&table.stack, layers.first()) {
            (None, _) => layers.into_iter().fold(Stack::default(), Stack::with),
            (Some(line), None) => Stack::parse(line).map_err(|reason| format!("stack: {reason}"))?,
            (Some(_), Some(layer)) => {
                return Err(format!(
                    "stack has all layers of the target; it excludes {}",
                    layer.kind().key()
                ));
            }
        };
        let TargetTable { name, sudo, neighbour, settings, .. } = table;
        Ok(Self { name, stack, sudo, neighbour, settings })
    }
}

impl From<TargetSpec> for TargetTable {
    fn from(target: TargetSpec) -> Self {
        let TargetSpec { name, stack, sudo, neighbour, settings } = target;
        let mut table = Self::default();
        if !table.set_layers(stack.layers()) {
            table = Self { stack: Some(stack.line()), ..Self::default() };
        }
        Self { name, sudo, neighbour, settings, ..table }
    }
}

impl JsonSchema for TargetSpec {
    fn schema_name() -> Cow<'static, str> {
        "TargetSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        TargetTable::json_schema(generator)
    }
}
