//! The style sheets and scripts of the report and of this site.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;
use iotax_report::html;
use sha2::{Digest, Sha256};

use crate::problem::Problem;

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: String,
    /// Hash of the contents. It is part of the assets' URLs, so that browsers never use outdated copies from their cache.
    edition: String,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let (css, js) = ("text/css; charset=utf-8", "text/javascript; charset=utf-8");
    let scripts = html::SCRIPTS.map(|(name, text)| (name, js, text.to_owned()));
    let style = format!("{}{}", html::STYLE, include_str!("assets/site.css"));
    let ours = [("site.css", css, style), ("site.js", js, include_str!("assets/site.js").to_owned())];
    let edition = |text: &str| HEXLOWER.encode(&Sha256::digest(text)[..6]);
    let all = scripts.into_iter().chain(ours);
    all.map(|(name, kind, text)| Asset { name, kind, edition: edition(&text), text }).collect()
});

/// Returns the URL path of an asset, with the hash of its contents as the query.
pub(crate) fn path(name: &str) -> String {
    let edition = ASSETS.iter().find(|asset| asset.name == name).map_or("", |asset| &asset.edition);
    format!("/static/{name}?{edition}")
}

pub(crate) async fn get(Path(name): Path<String>) -> Result<Response, Problem> {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| Problem::not_found("there is no such file"))?;
    let headers =
        [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok((headers, asset.text.as_str()).into_response())
}
