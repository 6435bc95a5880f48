//! `oncebox token`.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SecureRandom as _;

use super::{CommandError, Exit};
use crate::api::access::{ApiRole, hash, hex};

/// What `token` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who it is for: recorded with what they do.
    name: String,
    /// What it may do; can be given several times.
    #[arg(long = "role", value_name = "ROLE", value_parser = role, default_value = "viewer")]
    roles: Vec<ApiRole>,
    /// Hashes the token that is read from the standard input, instead of making one.
    #[arg(long)]
    stdin: bool,
}

fn role(text: &str) -> Result<ApiRole, String> {
    let all = ApiRole::ALL.map(ApiRole::as_str).join(", ");
    ApiRole::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| format!("use one of {all}"))
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if args.name.is_empty() || !args.name.chars().all(good) {
        return Err(Exit::Usage.with(anyhow!("a name is made of letters, digits, `-` and `_`")));
    }
    let token = if args.stdin { read()? } else { fresh()? };
    let digits = hex(&hash(token.as_bytes()));
    let roles: Vec<String> = args.roles.iter().map(|role| format!("\"{}\"", role.as_str())).collect();
    let (name, roles) = (&args.name, roles.join(", "));
    if !args.stdin {
        // Apart from the rest, so that only the hash gets into a file by accident.
        eprintln!("The token, shown this once; send it as `Authorization: Bearer …`:\n\n  {token}\n");
        if std::io::stdout().is_terminal() {
            eprintln!("For oncebox.toml, which needs only its hash:\n");
        }
    }
    // A file that does not end with a line break stays good when this is added to it.
    let table = format!("\n[api.token.{name}]\nhash = \"sha256:{digits}\"\nroles = [{roles}]\n");
    std::io::stdout().write_all(table.as_bytes()).context("cannot write to the standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// 256 random bits: nobody guesses them, so a plain hash keeps them.
fn fresh() -> Result<String, CommandError> {
    let mut bytes = [0; 32];
    let random = ring::rand::SystemRandom::new();
    random.fill(&mut bytes).map_err(|_| Exit::Start.with(anyhow!("the system has no random numbers")))?;
    Ok(format!("obx_{}", URL_SAFE_NO_PAD.encode(bytes)))
}

fn read() -> Result<String, CommandError> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the standard input")?;
    let token = text.trim_end_matches(['\r', '\n']);
    let sendable = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.len() < 32 || !sendable {
        let what = "a token has 32 characters or more, without blanks: a short one is guessed from its hash";
        return Err(Exit::Usage.with(anyhow!(what)));
    }
    Ok(token.to_owned())
}
