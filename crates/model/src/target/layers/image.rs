//! An existing disk image that is measured without being modified.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, Format, FromLine, LayerInterface, LayerType, Part, PlannedLayer,
    Segments, keys, word,
};

/// An existing disk image, in any format that QEMU detects. The image itself is only read; writes need an overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ImageEntry", into = "ImageEntry")]
pub struct ImageSpec {
    /// Path of the image.
    pub path: PathBuf,
    /// Format in which QEMU reads the image; `None` for the one that it detects.
    pub format: Option<Format>,
    /// Existing directory for a qcow2 overlay that receives all writes; `None` if workloads only read.
    pub overlay: Option<PathBuf>,
}

/// An existing image as written in a plan: a path, or a table with further keys.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "accepted: image = \"/srv/vm.qcow2\", or image = { path = \"/srv/vm.qcow2\", overlay = \"/srv/scratch\" } to write to an overlay"
)]
#[schemars(rename = "ImageSpec")]
enum ImageEntry {
    /// The image, which is only read
    Path(PathBuf),
    /// The image, and an overlay that receives all writes
    Table(ImageTable),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ImageTable {
    /// Path of the image, which is not changed
    path: PathBuf,
    /// Format in which QEMU reads the image; with raw, the guest sees the file's own bytes, even if they are in another format [default: detected]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    format: Option<Format>,
    /// A directory for a qcow2 overlay on the image, recreated before each measurement, which takes all writes [default: the image is only read]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    overlay: Option<PathBuf>,
}

impl From<ImageEntry> for ImageSpec {
    fn from(entry: ImageEntry) -> Self {
        match entry {
            ImageEntry::Path(path) => Self { path, format: None, overlay: None },
            ImageEntry::Table(table) => table.into(),
        }
    }
}

impl From<ImageTable> for ImageSpec {
    fn from(ImageTable { path, format, overlay }: ImageTable) -> Self {
        Self { path, format, overlay }
    }
}

impl From<ImageSpec> for ImageEntry {
    fn from(ImageSpec { path, format, overlay }: ImageSpec) -> Self {
        if format.is_none() && overlay.is_none() {
            Self::Path(path)
        } else {
            Self::Table(ImageTable { path, format, overlay })
        }
    }
}

impl JsonSchema for ImageSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        ImageEntry::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        ImageEntry::json_schema(generator)
    }
}

impl LayerType for ImageSpec {
    fn key(&self) -> &'static str {
        "image"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Nothing]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::BlockNode
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        Some(BottomLocation::Path(&self.path))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        [&mut self.path].into_iter().chain(&mut self.overlay).collect()
    }

    fn confine(&self, area: &dyn Area) -> Result<(), String> {
        // The image itself is only read.
        let Self { path: _, format: _, overlay } = self;
        area.takes_files("image.overlay", overlay.as_deref())
    }

    fn parts(&self) -> Vec<Part> {
        let format = self.format.filter(|format| *format != Format::Raw);
        let format = format.map(|format| Part::format(format, Part::plain(format.word())));
        format.into_iter().chain(self.overlay.iter().map(|_| Part::plain("overlay"))).collect()
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let Self { path, format, overlay } = self.clone();
        let shown = word(&path.to_string_lossy());
        vec![format!("image {shown}{}", keys(&ImageTable { path, format, overlay }, None, &["path"]))]
    }
}

impl FromLine for ImageSpec {
    const FORMS: &[&str] = &["image PATH"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word, path] = segments.next_words()? else { return None };
        let path = toml::Value::from(path.as_str());
        (word == "image").then(|| segments.take().spec::<ImageTable>([("path", path)]).map(Self::from))
    }
}
