//! A layer kind for tests: its own settings and its line in `layers!` are all that a plan's table, its schema and a stack's line need.

use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, CacheMode, FileSpec, FromLine, LayerInterface, LayerType, Part, Segments, Settings, keys,
};

/// A fictional layer kind, for this test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BottleSpec {
    /// In litres.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    volume: Option<u32>,
}

impl LayerType for BottleSpec {
    fn key(&self) -> &'static str {
        "bottle"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::RawFile]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        Some(CacheMode::Unsafe)
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("bottle", "bottle", self, &[])]
    }

    fn segments(&self, _: Option<&super::PlannedLayer>) -> Vec<String> {
        vec![format!("bottle{}", keys(self, None, &[]))]
    }
}

impl FromLine for BottleSpec {
    const FORMS: &[&str] = &["bottle"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "bottle").then(|| segments.take().spec([]))
    }
}

/// Mirrors the trait of the real kinds.
trait LayerSpec: LayerType + Sized {
    fn of(layer: &PlannedLayer) -> Option<&Self>;
    fn of_mut(layer: &mut PlannedLayer) -> Option<&mut Self>;
}

layers! {
    /// A file.
    file: File(FileSpec),
    /// A bottle.
    bottle: Bottle(BottleSpec),
}

#[test]
fn a_kind_is_its_settings_and_one_line() {
    let plan = "name = \"b\"\nfile = { dir = \"/srv\" }\nbottle = { volume = 3 }";
    let mut table: TargetTable = toml::from_str(plan).expect("a table");
    let layers = table.take_layers();
    let bottle = PlannedLayer::from(BottleSpec { volume: Some(3) });
    assert_eq!(layers[1], bottle);
    assert_eq!(bottle.kind().segments(None), ["bottle volume=3"]);

    let mut segments = Segments::of("bottle volume=3").expect("a line");
    let read = PlannedLayer::read(&mut segments, &Below::default());
    assert_eq!(read, Some(Ok(bottle.clone())));
    assert_eq!(BottleSpec::of(&bottle).and_then(|bottle| bottle.volume), Some(3));

    let caches: Vec<_> = layers.iter().filter_map(|layer| layer.kind().cache()).collect();
    assert_eq!(caches, [CacheMode::Unsafe], "a file passes direct I/O on");

    assert!(table.set_layers(&layers));
    assert!(toml::to_string(&table).expect("written").contains("[bottle]\nvolume = 3"));
    let refused =
        toml::from_str::<TargetTable>("name = \"b\"\nbottle = { colour = 1 }").expect_err("no such key");
    assert!(refused.to_string().contains("unknown field `colour`, expected `volume`"), "{refused}");

    let schema = schema_for!(TargetTable).to_value().to_string();
    assert!(schema.contains("\"A bottle.\"") && schema.contains("\"In litres.\""), "{schema}");
    let edges: Vec<Part> = layers.iter().flat_map(|layer| layer.kind().parts()).collect();
    assert_eq!(edges.last().map(|part| part.settings.get("volume").map(String::as_str)), Some(Some("3")));
}
