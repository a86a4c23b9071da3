//! The tables of the database, and the migrations from older versions.
//!
//! `{int}`, `{bytes}` and `{strict}` are placeholders for the keywords of each database. The schema version is in the
//! file's header with SQLite, and in a table with PostgreSQL.

/// The oldest schema version that can be migrated.
pub(crate) const OLDEST: i64 = 6;

/// A migration from one schema version to the next.
#[derive(Debug)]
pub(crate) struct Step {
    /// Schema version after the migration.
    pub(crate) to: i64,
    /// SQL for both databases; the next fields have the SQL for one of them.
    both: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// The migrations up to the newest version. The first one creates all tables; later versions append migrations.
pub(crate) const STEPS: &[Step] = &[Step { to: OLDEST, both: TABLES, sqlite: SQLITE, postgres: POSTGRES }];

/// SQL of the tables. `content` columns hold JSON compressed with zstd. `seal` columns hold checksums over the row's data and the run's
/// number. In the table `run`, `summary_seal` covers the columns that lists show, and `seal` only `content`.
const TABLES: &str = "
CREATE TABLE store (
    one      {int} PRIMARY KEY CHECK (one = 1),
    last_run {int} NOT NULL,
    seal     {int} NOT NULL
){strict};

CREATE TABLE run (
    id            {int} PRIMARY KEY,
    uuid          TEXT  NOT NULL UNIQUE,
    name          TEXT  NOT NULL,
    state         TEXT  NOT NULL,
    started_at_ms {int} NOT NULL,
    machine       TEXT,
    fleet         TEXT,
    member        TEXT,
    fleet_mode    TEXT,
    fleet_link    TEXT,
    measured      {int} NOT NULL,
    planned       {int} NOT NULL,
    targets       TEXT  NOT NULL,  -- a JSON array of names
    words         TEXT  NOT NULL,  -- what a search looks through, in lower case
    summary_seal  {int} NOT NULL,  -- over the columns before it
    content       {bytes} NOT NULL,  -- sealed::Head
    seal          {int} NOT NULL
){strict};

CREATE INDEX run_state ON run (state);
CREATE INDEX run_machine ON run (machine);
CREATE INDEX run_fleet ON run (fleet);

CREATE TABLE measurement (
    run      {int} NOT NULL REFERENCES run (id),
    target   TEXT  NOT NULL,
    workload TEXT  NOT NULL,
    round    {int} NOT NULL,
    figures  TEXT  NOT NULL,  -- a JSON object of figures by id
    latency  TEXT  NOT NULL,  -- a JSON object of histograms by direction
    content  {bytes} NOT NULL,  -- model::record::Measurement
    seal     {int} NOT NULL,
    PRIMARY KEY (run, target, workload, round)
){strict};

CREATE TABLE note (
    run           {int} PRIMARY KEY REFERENCES run (id),
    text          TEXT  NOT NULL,
    words         TEXT  NOT NULL,  -- text and tags in lower case
    changed_at_ms {int} NOT NULL,
    seal          {int} NOT NULL
){strict};

CREATE TABLE tag (
    run {int} NOT NULL REFERENCES run (id),
    tag TEXT  NOT NULL,
    PRIMARY KEY (run, tag)
){strict};

CREATE INDEX tag_tag ON tag (tag);

-- What trends read of finished runs; content is analysis::trend::RunFigures.
CREATE TABLE run_figures (
    run      {int} PRIMARY KEY REFERENCES run (id),
    revision {int} NOT NULL,  -- of the run that they were taken of
    rules    {int} NOT NULL,  -- version of the rules that leave measurements out
    content  {bytes} NOT NULL,
    seal     {int} NOT NULL
){strict};
";

/// SQL of the views for SQLite. In the view `bucket`, `value_ns` is the middle of a histogram's bucket, as in `model::histogram`: there are
/// 128 buckets per power of two. The last bucket has no upper bound, so its value is the measured maximum.
const SQLITE: &str = "
CREATE VIEW figure AS
SELECT m.run, m.target, m.workload, m.round, f.key AS figure, f.value AS value
FROM measurement m, json_each(m.figures) f;

CREATE VIEW bucket AS
SELECT run, target, workload, round, direction, bucket,
       CASE WHEN bucket < 128 THEN bucket
            WHEN bucket = 4351 THEN max_ns
            ELSE ((128 + (bucket & 127)) << ((bucket >> 7) - 1)) + ((1 << ((bucket >> 7) - 1)) - 1) / 2.0 END AS value_ns,
       count, min_ns, max_ns
FROM (SELECT m.run, m.target, m.workload, m.round, d.key AS direction,
             json_extract(b.value, '$[0]') AS bucket, json_extract(b.value, '$[1]') AS count,
             json_extract(d.value, '$.min_ns') AS min_ns, json_extract(d.value, '$.max_ns') AS max_ns
      FROM measurement m, json_each(m.latency) d, json_each(d.value, '$.buckets') b);
";

/// SQL of the views and access rules for PostgreSQL. A run belongs to the role that stored it. Other roles can read it, and can change only
/// its notes and tags. The owner of the tables is not bound by these rules. A run's identity never changes. Figures must be numbers,
/// because other values would make every query of the views fail. The length of notes is limited, because lists read them.
///
/// The search path names `pg_temp`, because otherwise temporary tables come first: a session with a temporary table `run` could pass as the
/// owner of every run.
///
/// A claim is valid while the session `pid` holds the advisory lock `key`. Everyone can take a lock, but not under the `pid` of another
/// session.
const POSTGRES: &str = r#"
CREATE VIEW figure AS
SELECT m.run, m.target, m.workload, m.round, f.key AS figure, f.value::double precision AS value
FROM measurement m CROSS JOIN LATERAL jsonb_each_text(m.figures::jsonb) f;

CREATE VIEW bucket AS
SELECT run, target, workload, round, direction, bucket,
       CASE WHEN bucket < 128 THEN bucket
            WHEN bucket = 4351 THEN max_ns
            ELSE ((128 + (bucket & 127)) << ((bucket >> 7) - 1)::int)
                 + ((1::bigint << ((bucket >> 7) - 1)::int) - 1) / 2.0::double precision END AS value_ns,
       count, min_ns, max_ns
FROM (SELECT m.run, m.target, m.workload, m.round, d.key AS direction,
             (b->>0)::bigint AS bucket, (b->>1)::bigint AS count,
             (d.value->>'min_ns')::bigint AS min_ns, (d.value->>'max_ns')::bigint AS max_ns
      FROM measurement m CROSS JOIN LATERAL jsonb_each(m.latency::jsonb) d
           CROSS JOIN LATERAL jsonb_array_elements(d.value->'buckets') b) of_index;

CREATE UNLOGGED TABLE live (
    run   BIGINT PRIMARY KEY,
    state TEXT NOT NULL
);

CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO schema_version VALUES (0);

ALTER TABLE run ADD COLUMN writer TEXT NOT NULL DEFAULT current_user;

CREATE TABLE claim (
    run BIGINT PRIMARY KEY REFERENCES run (id),
    pid BIGINT NOT NULL,
    key BIGINT NOT NULL
);

CREATE FUNCTION is_own(of BIGINT) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS
'SELECT EXISTS (SELECT 1 FROM iotax.run WHERE id = of AND writer = current_user)';

ALTER TABLE run ENABLE ROW LEVEL SECURITY;
CREATE POLICY reads ON run FOR SELECT USING (true);
CREATE POLICY adds ON run FOR INSERT WITH CHECK (writer = current_user AND id = (SELECT last_run FROM store));
CREATE POLICY changes ON run FOR UPDATE USING (writer = current_user);

ALTER TABLE measurement ENABLE ROW LEVEL SECURITY;
CREATE POLICY reads ON measurement FOR SELECT USING (true);
CREATE POLICY adds ON measurement FOR INSERT WITH CHECK (is_own(run));

ALTER TABLE run_figures ENABLE ROW LEVEL SECURITY;
CREATE POLICY reads ON run_figures FOR SELECT USING (true);
CREATE POLICY changes ON run_figures USING (is_own(run));

ALTER TABLE live ENABLE ROW LEVEL SECURITY;
CREATE POLICY reads ON live FOR SELECT USING (true);
CREATE POLICY changes ON live USING (is_own(run));

ALTER TABLE claim ENABLE ROW LEVEL SECURITY;
CREATE POLICY reads ON claim FOR SELECT USING (true);
CREATE POLICY changes ON claim USING (is_own(run));

CREATE FUNCTION goes_on() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS '
BEGIN
    IF NEW.last_run NOT IN (OLD.last_run + 1, (SELECT coalesce(max(id), 0) + 1 FROM iotax.run)) THEN
        RAISE EXCEPTION ''the number of runs goes up by one'';
    END IF;
    RETURN NEW;
END';
CREATE TRIGGER goes_on BEFORE UPDATE ON store FOR EACH ROW EXECUTE FUNCTION goes_on();

CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS '
BEGIN
    IF (NEW.id, NEW.uuid, NEW.writer) IS DISTINCT FROM (OLD.id, OLD.uuid, OLD.writer) THEN
        RAISE EXCEPTION ''the number, UUID and writer of a run stay'';
    END IF;
    RETURN NEW;
END';
CREATE TRIGGER stays BEFORE UPDATE ON run FOR EACH ROW EXECUTE FUNCTION stays();

ALTER TABLE measurement ADD CONSTRAINT figures_are_numbers CHECK (
    jsonb_typeof(figures::jsonb) = 'object'
    AND NOT jsonb_path_exists(figures::jsonb, '$.*.type() ? (@ != "number" && @ != "null")')
    AND NOT jsonb_path_exists(figures::jsonb, '$.* ? (@ > 1e300 || @ < -1e300 || @ != 0 && @ < 1e-300 && @ > -1e-300)')
);
ALTER TABLE measurement ADD CONSTRAINT latency_is_whole CHECK (
    jsonb_typeof(latency::jsonb) = 'object'
    AND latency !~ '[0-9][.]'
    AND NOT jsonb_path_exists(latency::jsonb, '$.*.buckets.type() ? (@ != "array")')
    AND NOT jsonb_path_exists(latency::jsonb, '$.*.buckets[*][*].type() ? (@ != "number")')
    AND NOT jsonb_path_exists(latency::jsonb, '$.*.buckets[*][0] ? (@ > 4351)')
    AND NOT jsonb_path_exists(latency::jsonb, '$.*.*.type() ? (@ != "number" && @ != "array" && @ != "null")')
    AND NOT jsonb_path_exists(latency::jsonb, '$.** ? (@.type() == "number" && (@ < 0 || @ > 18446744073709551615 || @.floor() != @))')
    AND NOT jsonb_path_exists(latency::jsonb, '$.*.min_ns ? (@ > 9223372036854775807)')
    AND NOT jsonb_path_exists(latency::jsonb, '$.*.max_ns ? (@ > 9223372036854775807)')
    AND NOT jsonb_path_exists(latency::jsonb, '$.*.buckets[*][*] ? (@ > 9223372036854775807)')
);

ALTER TABLE note ADD CONSTRAINT is_short CHECK (octet_length(text) + octet_length(words) <= 4194304);
ALTER TABLE tag ADD CONSTRAINT is_short CHECK (octet_length(tag) <= 4096);
"#;

/// Returns the newest schema version.
pub(crate) fn version() -> i64 {
    newest(STEPS)
}

/// Returns the schema version after all of these migrations.
pub(crate) fn newest(steps: &[Step]) -> i64 {
    steps.last().map_or(0, |step| step.to)
}

/// Returns whether a store of this version has the newest schema or can be migrated to it.
pub(crate) fn is_known(version: i64, newest: i64) -> bool {
    (OLDEST..=newest).contains(&version)
}

/// Returns the migrations that a store of version `found` needs.
pub(crate) fn steps(found: i64, all: &'static [Step]) -> impl Iterator<Item = &'static Step> {
    all.iter().filter(move |step| step.to > found)
}

/// Returns the SQL of a migration for SQLite.
pub(crate) fn of_sqlite(step: &Step) -> String {
    let tables = step.both.replace("{int}", "INTEGER").replace("{bytes}", "BLOB");
    tables.replace("{strict}", " STRICT") + step.sqlite
}

/// Returns the SQL of a migration for PostgreSQL.
pub(crate) fn of_postgres(step: &Step) -> String {
    let tables = step.both.replace("{int}", "BIGINT").replace("{bytes}", "BYTEA");
    tables.replace("{strict}", "") + step.postgres
}

#[cfg(test)]
mod tests;
