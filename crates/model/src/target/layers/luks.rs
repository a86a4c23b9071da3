//! Encryption by the kernel: dm-crypt with a LUKS2 header.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::integrity::check_sector_size;
use super::{
    Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::units::Bytes;

/// A LUKS2 container with a random key, formatted by cryptsetup and opened for the run, to measure the cost of dm-crypt. Its settings have
/// the names of cryptsetup's options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LuksSpec {
    /// Cipher, as in `cryptsetup --cipher` [default: cryptsetup's, aes-xts-plain64]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// Bits of the volume's key, a multiple of 8; XTS uses two keys, so AES-128 needs 256 [default: cryptsetup's]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_size: Option<u32>,
    /// Bytes that are encrypted as a unit: 512, 1024, 2048 or 4096 [default: cryptsetup's, by the disk]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u32>,
    /// Decrypt in the context of the completion instead of a workqueue (Linux 5.9 or later).
    pub no_read_workqueue: bool,
    /// Encrypt in the context of the caller instead of a workqueue (Linux 5.9 or later).
    pub no_write_workqueue: bool,
    /// Pass trims on to the disk.
    pub allow_discards: bool,
}

impl LuksSpec {
    /// Bytes reserved in front of the data: for the LUKS2 header, and to align the data to RAID stripes below.
    const HEADER: u64 = 32 << 20;
}

impl LayerType for LuksSpec {
    fn key(&self) -> &'static str {
        "luks"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Block]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn formats(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        let is_cipher = |text: &String| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_:,()".contains(c))
        };
        if let Some(cipher) = self.cipher.as_ref().filter(|cipher| !is_cipher(cipher)) {
            return Err(format!(
                "cipher = {cipher:?}: accepted: a cipher as cryptsetup names it, such as aes-xts-plain64"
            ));
        }
        if let Some(bits) = self.key_size.filter(|bits| bits % 8 != 0 || !(64..=4096).contains(bits)) {
            return Err(format!("key_size = {bits}: accepted: a multiple of 8 from 64 to 4096 bits"));
        }
        check_sector_size(self.sector_size)
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("luks opens a mapping of the kernel's".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("luks", "dm-crypt", self, &[])]
    }

    fn size_below(&self, above: Bytes, _: &mut Option<Bytes>) -> Bytes {
        Bytes(above.0.saturating_add(Self::HEADER))
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("luks{}", keys(self, Some(&Self::default()), &[]))]
    }
}

impl FromLine for LuksSpec {
    const FORMS: &[&str] = &["luks"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "luks").then(|| segments.take().spec([]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cryptsetup_would_not_take_is_refused_with_what_is_accepted() {
        for (keys, words) in [
            ("cipher = '--help'", "\"--help\": accepted: a cipher as cryptsetup names it"),
            ("cipher = 'aes xts'", "a cipher as cryptsetup names it"),
            ("cipher = ''", "a cipher as cryptsetup names it"),
            ("key_size = 255", "key_size = 255: accepted: a multiple of 8"),
            ("key_size = 0", "from 64 to 4096 bits"),
            ("sector_size = 8192", "sector_size = 8192: accepted: 512, 1024, 2048 or 4096"),
        ] {
            let spec: LuksSpec = toml::from_str(keys).expect(keys);
            let refusal = spec.check().expect_err(keys);
            assert!(refusal.contains(words), "{keys}: {refusal}");
        }
        for keys in [
            "",
            "cipher = 'xchacha12,aes-adiantum-plain64'\nkey_size = 256",
            "cipher = 'capi:xts(aes)-plain64'",
        ] {
            assert_eq!(toml::from_str::<LuksSpec>(keys).expect(keys).check(), Ok(()), "{keys}");
        }
    }
}
