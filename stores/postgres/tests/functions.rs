//! The functions in the database: builds with different versions of them work side by side, and a published version
//! never changes.

mod fixture;
mod support;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fixture::{accept, complete_all};
use oncebox::ErrorKind;
use oncebox::store::Migrate as _;
use oncebox_postgres::sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _, raw_sql,
};
use oncebox_postgres::{Postgres, PostgresOptions};
use oncebox_servers::shared;
use sha2::{Digest as _, Sha256};
use support::{Schema, run};

/// The published functions, and the start of the SHA-256 of each without its comments and line breaks.
const PUBLISHED: [(&str, &str); 13] = [
    ("accept_new_v1", "22ee4ad3e327"),
    ("accept_v1", "63fb4db42e47"),
    ("check_timeline_v1", "0fb1cd8f4d53"),
    ("drop_partition_v1", "e032af1a8366"),
    ("drop_payload_v1", "4e89b455c4bf"),
    ("here_v1", "a0f5b555e3a3"),
    ("hold_v1", "b16d1d3e5b04"),
    ("make_partition_v1", "3aa450a91480"),
    ("mark_v1", "95b7cb43ecac"),
    ("park_v1", "0c92ed78099e"),
    ("release_v1", "0f11888709b0"),
    ("settle_v1", "19cdc71c5cc4"),
    ("wait_turn_v1", "5fafea6df6a0"),
];

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("functions");
    let files = std::fs::read_dir(root).expect("the folder of functions");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files
}

fn name(file: &Path) -> String {
    file.file_stem().expect("a name").to_string_lossy().into_owned()
}

/// Returns the start of the digest of a function, without its comments and line breaks.
fn digest(sql: &str) -> String {
    let code = sql.lines().map(|line| line.split("--").next().unwrap_or(line));
    let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
    let mut text = String::new();
    for byte in &Sha256::digest(words.join(" "))[..6] {
        write!(text, "{byte:02x}").expect("a text grows");
    }
    text
}

// Processes of the release that published it still call it, and `migrate` does not replace existing functions.
#[test]
fn a_published_function_never_changes() {
    let found: Vec<(String, String)> = files()
        .iter()
        .map(|file| (name(file), digest(&std::fs::read_to_string(file).expect("a function"))))
        .collect();
    let published: Vec<(String, String)> =
        PUBLISHED.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect();
    assert_eq!(
        found, published,
        "a function differs from the published one: restore it, and make the change in a copy with the next version"
    );
}

#[test]
fn a_function_is_named_like_its_file_and_has_named_parameters() {
    for file in files() {
        let sql = std::fs::read_to_string(&file).expect("a function");
        let name = name(&file);
        assert!(sql.contains(&format!("CREATE FUNCTION oncebox_{name}(")), "{name}");
        let (header, create) = sql.split_once("CREATE FUNCTION").expect("a function");
        assert!(header.lines().count() > 0 && header.lines().all(|line| line.starts_with("-- ")), "{name}");
        // `here` has no arguments.
        let (arguments, _) =
            create.split_once("(\n").and_then(|(_, from)| from.split_once("\n)")).unwrap_or_default();
        for line in arguments.lines().map(str::trim_start).filter(|line| !line.starts_with("--")) {
            assert!(line.is_empty() || line.starts_with("p_") || line.starts_with("OUT "), "{name}: {line}");
        }
    }
}

/// A schema, and a role with only the documented grants.
struct Release {
    schema: Schema,
    role: String,
}

impl Release {
    async fn new() -> Self {
        let schema = Schema::new(shared::debian_url());
        schema.options().apply().await.expect("apply");
        let role = format!("{}_worker", schema.name);
        schema.run(&format!("CREATE ROLE {role} LOGIN")).await;
        let grants = schema.options().grants_sql(&role).expect("what to grant");
        let mut owner = schema.connect().await;
        owner.execute(raw_sql(AssertSqlSafe(grants))).await.expect("the grants are good SQL");
        Self { schema, role }
    }

    fn url(&self) -> String {
        self.schema.url().replacen("oncebox@", &format!("{}@", self.role), 1)
    }

    /// Returns options of the role, which only checks the schema.
    fn options(&self) -> PostgresOptions {
        Postgres::options(&self.url()).expect("a good URL").schema(&self.schema.name).migrate(false)
    }

    /// Turns the functions of this build into those of an earlier one.
    async fn age(&self) {
        for file in files() {
            let name = name(&file);
            let former = name.replace("_v1", "_v0");
            let bare = format!("{}.oncebox_{name}", self.schema.name);
            self.schema.run(&format!("ALTER FUNCTION {bare} RENAME TO oncebox_{former}")).await;
        }
    }

    async fn functions(&self, ending: &str) -> i64 {
        let count = format!(
            "SELECT count(*) FROM pg_proc WHERE pronamespace = '{}'::regnamespace AND proname LIKE '%{ending}'",
            self.schema.name
        );
        self.schema.number(&count).await
    }

    async fn leave(self) {
        let mut owner = self.schema.connect().await;
        run(&mut owner, &format!("DROP OWNED BY {0}; DROP ROLE {0}", self.role)).await.expect("it leaves");
    }
}

/// Calls a function of an earlier build, as its processes do.
async fn hold_by(connection: &mut PgConnection, schema: &Schema, version: &str) -> Result<i64, String> {
    let sql = schema.sql(&format!(
        "SELECT count(*) FROM @hold_{version}(ARRAY[0], ARRAY[0]::int2[], ARRAY[0]::int2[], ARRAY[0]::int8[], ARRAY[0]::int8[], \
         ARRAY[gen_random_uuid()])"
    ));
    let row = connection.fetch_one(raw_sql(AssertSqlSafe(sql))).await.map_err(|error| error.to_string())?;
    Ok(row.get(0))
}

// FAULTS I4
#[tokio::test]
async fn a_new_build_adds_its_functions_and_leaves_those_of_the_former() {
    let release = Release::new().await;
    release.age().await;
    let error = release.options().open().await.expect_err("its functions are not there");
    assert_eq!(error.kind(), ErrorKind::SchemaOutdated);
    assert!(error.to_string().contains("lack functions that this build calls"), "{error}");
    let plan = release.schema.options().pending().await.expect("plan");
    assert_eq!(plan.iter().map(|step| (step.version, step.name)).collect::<Vec<_>>(), [(2, "functions")]);
    assert_eq!(plan[0].sql.matches("CREATE FUNCTION").count(), files().len());
    assert!(!plan[0].sql.contains("CREATE TABLE oncebox"), "the tables are there");

    assert_eq!(release.schema.options().apply().await.expect("apply"), plan);
    assert_eq!(release.schema.options().apply().await.expect("apply again"), [], "it is done once");
    assert_eq!(
        release.schema.number("SELECT count(*) FROM @schema").await,
        1,
        "no step of the tables is new"
    );
    assert_eq!(release.schema.number("SELECT count(*) FROM @partition").await, 2, "and no partition");
    assert_eq!((release.functions("_v0").await, release.functions("_v1").await), (13, 13));

    // The role has the privileges that it had on the former version, and other roles have none.
    let mut as_role = PgConnection::connect(&release.url()).await.expect("the role may log in");
    assert_eq!(hold_by(&mut as_role, &release.schema, "v0").await, Ok(0), "the former build goes on");
    let store = release.options().open().await.expect("the new build starts");
    accept(&store, "a").await;
    assert_eq!(complete_all(&store, "h").await, 1);
    let public = format!(
        "SELECT count(*) FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
         WHERE p.pronamespace = '{}'::regnamespace AND p.proname = 'oncebox_make_partition_v1' AND a.grantee = 0",
        release.schema.name
    );
    assert_eq!(release.schema.number(&public).await, 0);

    // A later, explicit step.
    let mut dropped = release.schema.options().drop_former_functions().await.expect("drop");
    dropped.sort();
    assert_eq!(dropped.len(), 13);
    assert!(dropped.iter().all(|name| name.ends_with("_v0")), "{dropped:?}");
    let error = hold_by(&mut as_role, &release.schema, "v0").await.expect_err("it is gone");
    assert!(error.contains("does not exist"), "{error}");
    accept(&store, "b").await;
    assert_eq!(release.schema.options().drop_former_functions().await.expect("again"), Vec::<String>::new());
    drop((store, as_role));
    release.leave().await;
}

// During a rolling deployment, the new build has migrated, and processes of this build continue and start.
#[tokio::test]
async fn a_changed_function_of_a_later_build_does_not_concern_this_one() {
    let release = Release::new().await;
    let store = release.options().open().await.expect("it opens");
    accept(&store, "a").await;
    let planted = release.schema.sql(
        "CREATE FUNCTION @accept_new_v2(text) RETURNS text LANGUAGE sql AS 'SELECT ''later''';
         CREATE FUNCTION @settle_v2() RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not for this build''; END';
         CREATE FUNCTION @hold_v10() RETURNS void LANGUAGE sql AS ''",
    );
    release.schema.run(&planted).await;
    assert_eq!(release.schema.options().pending().await.expect("plan"), [], "nothing is missing");
    accept(&store, "b").await;
    assert_eq!(complete_all(&store, "h").await, 2);
    drop(release.options().open().await.expect("another process of this build starts"));
    let dropped = release.schema.options().drop_former_functions().await.expect("drop");
    assert_eq!(dropped, Vec::<String>::new(), "what is later is not former");
    assert_eq!(release.schema.text("SELECT @accept_new_v2('')").await, "later");
    drop(store);
    release.leave().await;
}
