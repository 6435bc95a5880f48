//! A RabbitMQ broker with its data. Tests: `tests/rabbitmq.rs`.

mod agent;
mod leaders;

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::port::Port;
use crate::scratch::Scratch;
use crate::{INSTALL, process, tls};

/// Directory of the programs on Debian. Programs of the same names in `/usr/sbin` insist on the system's own broker.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// Few schedulers that do not spin: a test's broker shares the machine with many others.
const ERLANG: &str = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none";

/// Timeout of a start, which is mostly CPU time.
const START: Duration = Duration::from_mins(4);

/// Maximum starts of a broker whose queues get no leaders.
const STARTS: u32 = 3;

/// Builder of a broker; see [`RabbitMqServer::builder`].
#[derive(Clone, Debug, Default)]
pub struct RabbitMqServerBuilder {
    settings: Vec<(String, String)>,
    tls: bool,
    parent: Option<PathBuf>,
}

impl RabbitMqServerBuilder {
    /// Sets a setting of `rabbitmq.conf`.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Also offers TLS, with a certificate for `localhost` and 127.0.0.1 by an authority of its own; see
    /// [`RabbitMqServer::tls_url`] and [`RabbitMqServer::ca_file`].
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets the parent of the throwaway directory, for benchmarks on a certain disk. The user of the servers must be able to enter
    /// it.
    pub fn inside(mut self, parent: impl AsRef<Path>) -> Self {
        self.parent = Some(parent.as_ref().to_path_buf());
        self
    }

    /// Starts the broker, which takes some seconds.
    pub fn start(self) -> Result<RabbitMqServer> {
        RabbitMqServer::binary()?;
        let scratch = Scratch::new(self.parent.as_deref())?;
        for dir in ["node", "epmd"] {
            let dir = scratch.path().join(dir);
            fs::create_dir(&dir)?;
            scratch.give_away(&dir)?;
        }
        let cookie = scratch.path().join(".erlang.cookie");
        scratch.write(&cookie, "oncebox")?;
        fs::set_permissions(&cookie, fs::Permissions::from_mode(0o400))?;
        let ports = Ports {
            amqp: Port::free()?,
            amqps: Port::free()?,
            nodes: Port::free()?,
            epmd: Port::free()?,
            agent: Port::free()?,
        };
        let mut lines = format!("listeners.tcp.1 = 127.0.0.1:{}\n", ports.amqp.number());
        lines += "loopback_users = none\ndisk_free_limit.absolute = 50MB\nvm_memory_high_watermark.absolute = 512MiB\n";
        if self.tls {
            tls::make(&scratch)?;
            lines += &tls_lines(&scratch, &ports.amqps);
        }
        lines.extend(self.settings.iter().map(|(name, value)| format!("{name} = {value}\n")));
        scratch.write(&scratch.path().join("rabbitmq.conf"), &lines)?;
        scratch.write(&scratch.path().join("enabled_plugins"), "[].\n")?;
        agent::write(&scratch, &ports.agent)?;
        let epmd = start_epmd(&scratch, &ports.epmd)?;
        let broker = RabbitMqServer {
            scratch,
            ports,
            epmd,
            node: Mutex::default(),
            elections: AtomicU32::new(0),
            tls: self.tls,
        };
        broker.start_again()?;
        Ok(broker)
    }
}

#[derive(Debug)]
struct Ports {
    amqp: Port,
    amqps: Port,
    nodes: Port,
    epmd: Port,
    agent: Port,
}

/// A RabbitMQ broker for tests. Dropping it ends it and deletes its data.
///
/// User and password are `guest`.
#[derive(Debug)]
pub struct RabbitMqServer {
    scratch: Scratch,
    ports: Ports,
    epmd: Child,
    node: Mutex<Option<Child>>,
    elections: AtomicU32,
    tls: bool,
}

impl RabbitMqServer {
    /// Starts an empty broker.
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// Returns a builder with other settings.
    pub fn builder() -> RabbitMqServerBuilder {
        RabbitMqServerBuilder::default()
    }

    /// Returns the broker that all tests of this program share, with TLS. The first call starts it, and it ends with the program.
    /// Each test uses its own queues.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RabbitMqServer> = OnceLock::new();
        SHARED.get_or_init(|| match Self::builder().tls().start() {
            Ok(broker) => broker,
            Err(error) => panic!("{error:#}"),
        })
    }

    /// Returns the program. If it is missing, the error shows the command that installs it.
    pub fn binary() -> Result<PathBuf> {
        let program = Path::new(PROGRAMS).join("rabbitmq-server");
        if !program.is_file() {
            bail!("RabbitMQ is not installed; `{INSTALL}` installs it. Looked for {}", program.display());
        }
        Ok(program)
    }

    /// Returns the URL of the default vhost.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port())
    }

    /// Returns its URL with TLS, if it was built with [`tls`](RabbitMqServerBuilder::tls).
    pub fn tls_url(&self) -> Option<String> {
        self.tls.then(|| format!("amqps://guest:guest@localhost:{}/%2f", self.ports.amqps.number()))
    }

    /// Returns the certificate of the authority that signed the broker's.
    pub fn ca_file(&self) -> Option<PathBuf> {
        self.tls.then(|| tls::ca_file(&self.scratch))
    }

    /// Returns the port on 127.0.0.1, which stays reserved while the broker is down.
    pub fn port(&self) -> u16 {
        self.ports.amqp.number()
    }

    /// Runs `rabbitmqctl`, which takes a second or more, and returns its output.
    pub fn ctl(&self, args: &[&str]) -> Result<String> {
        let mut ctl = self.command("rabbitmqctl");
        // Without headers and progress messages.
        process::run(ctl.arg("--quiet").args(args))
    }

    /// Starts a stopped or killed broker. Waits until it accepts connections and every quorum queue has a leader.
    ///
    /// If a queue gets no leader, it triggers an election, and finally restarts the broker. It prints its steps.
    pub fn start_again(&self) -> Result<()> {
        for start in 1..=STARTS {
            self.launch()?;
            let left = self.elect_leaders()?;
            if left.is_empty() {
                return Ok(());
            }
            eprintln!(
                "oncebox-servers: RabbitMQ on port {} still has no leader for {}; starting it again ({start} of {STARTS})",
                self.port(),
                left.join(", ")
            );
            self.kill9()?;
        }
        bail!("RabbitMQ on port {} was started {STARTS} times, and has queues without a leader", self.port())
    }

    fn launch(&self) -> Result<()> {
        let mut node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        if node.is_some() {
            bail!("the broker on port {} is still running", self.port());
        }
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut server = self.command("rabbitmq-server");
        // After `exec` it is one process: the broker itself.
        server.env("RUNNING_UNDER_SYSTEMD", "true");
        let arguments = format!("{ERLANG} {}", agent::ARGUMENTS);
        server.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", arguments);
        let child = server.stdout(log.try_clone()?).stderr(log).spawn().context("cannot start RabbitMQ")?;
        let child = node.insert(child);
        process::until_within(START, "RabbitMQ takes connections", || {
            if let Some(status) = child.try_wait()? {
                bail!("RabbitMQ ended at once ({status}); its log ends with:\n{}", self.log_end());
            }
            let takes = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).is_ok();
            Ok((takes && self.has_agent()).then_some(()))
        })
        .with_context(|| format!("the log of RabbitMQ ends with:\n{}", self.log_end()))
    }

    /// Kills the broker, so that it neither closes connections nor writes anything.
    ///
    /// Before that, the broker writes its list of quorum queues to the disk. RabbitMQ 3.10 does so only after a table was idle for
    /// a while. A busy broker that is killed forgets queues that were declared minutes ago, and their messages.
    pub fn kill9(&self) -> Result<()> {
        self.running()?;
        self.query("sync")?;
        self.end("KILL")
    }

    /// Shuts the broker down.
    pub fn stop(&self) -> Result<()> {
        self.end("TERM")
    }

    /// Suspends the broker, like a machine that hangs: connections stay open, and the broker does not respond.
    pub fn suspend(&self) -> Result<()> {
        process::stop(&self.running()?)
    }

    /// Resumes a suspended broker.
    pub fn resume(&self) -> Result<()> {
        process::signal("CONT", &self.running()?)
    }

    fn end(&self, signal: &str) -> Result<()> {
        let mut node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut child) = node.take() else { bail!("the broker on port {} is not running", self.port()) };
        process::signal(signal, &[child.id()])?;
        child.wait()?;
        // Its helpers end when they lose contact with it.
        process::until("the processes of the broker end", || {
            let left = process::working_in(&self.home())?;
            process::signal("KILL", &left)?;
            Ok(left.is_empty().then_some(()))
        })
    }

    fn running(&self) -> Result<Vec<u32>> {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let child =
            node.as_ref().with_context(|| format!("the broker on port {} is not running", self.port()))?;
        Ok(vec![child.id()])
    }

    /// Returns the directory in which only the broker works.
    fn home(&self) -> PathBuf {
        self.scratch.path().join("node")
    }

    fn log(&self) -> PathBuf {
        self.home().join("log")
    }

    fn log_end(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Returns a command of RabbitMQ with the settings of this broker.
    fn command(&self, program: &str) -> Command {
        let (home, scratch) = (self.home(), self.scratch.path());
        let mut command = self.scratch.command(Path::new(PROGRAMS).join(program));
        command.current_dir(&home);
        command.env("ERL_EPMD_PORT", self.ports.epmd.number().to_string());
        command.env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODENAME", self.node_name());
        command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODE_PORT", self.port().to_string());
        command.env("RABBITMQ_DIST_PORT", self.ports.nodes.number().to_string());
        command.env("RABBITMQ_MNESIA_BASE", home.join("data"));
        command.env("RABBITMQ_LOG_BASE", &home);
        command.env("RABBITMQ_LOGS", "-");
        command.env("ERL_CRASH_DUMP", "/dev/null");
        command.env("RABBITMQ_CONFIG_FILE", scratch.join("rabbitmq.conf"));
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", scratch.join("enabled_plugins"));
        command.env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
        command.env("RABBITMQ_PID_FILE", home.join("pid"));
        command
    }

    /// Returns a node name that no other broker of this machine has.
    fn node_name(&self) -> String {
        format!("oncebox{}@localhost", self.port())
    }
}

impl Drop for RabbitMqServer {
    fn drop(&mut self) {
        // Its data is deleted too, so it needs no orderly shutdown.
        let node = self.node.get_mut().unwrap_or_else(PoisonError::into_inner);
        for child in node.as_mut().into_iter().chain([&mut self.epmd]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Registry of Erlang nodes. Each broker has its own in the foreground: the one that a node starts goes to the background, works in
/// `/`, and outlives the node.
fn start_epmd(scratch: &Scratch, port: &Port) -> Result<Child> {
    let mut epmd = scratch.command("epmd");
    epmd.current_dir(scratch.path().join("epmd"));
    epmd.args(["-address", "127.0.0.1", "-port", &port.number().to_string()]);
    let log = File::create(scratch.path().join("epmd/log"))?;
    let mut child = epmd.stdout(log.try_clone()?).stderr(log).spawn().context("cannot start `epmd`")?;
    process::until("epmd takes connections", || {
        if let Some(status) = child.try_wait()? {
            bail!("epmd ended at once ({status})");
        }
        Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port.number())).ok())
    })?;
    Ok(child)
}

fn tls_lines(scratch: &Scratch, port: &Port) -> String {
    let path = |file: &str| scratch.path().join(file).display().to_string();
    format!(
        "listeners.ssl.1 = 127.0.0.1:{}\nssl_options.cacertfile = {}\nssl_options.certfile = {}\nssl_options.keyfile = {}\n\
         ssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\n",
        port.number(),
        path("ca.crt"),
        path("server.crt"),
        path("server.key"),
    )
}
