//! The attribute `#[oncebox::handler]`. Use it through the crate `oncebox`, which documents and re-exports it.

mod dedupe;
mod duration;
mod expand;
mod gate;
mod key;
mod options;
mod retry;
mod signature;
mod suggest;

use proc_macro::TokenStream;

/// Defines the settings of a handler at its function instead of at its registration.
///
/// The function stays as it is: it can be called, tested and registered by hand. The attribute adds a type of the same name, which
/// never has a value (functions and types have separate names), with
///
/// - `ship::registration()`, a [`Registration`](https://docs.rs/oncebox) for `InboxBuilder::register`,
/// - `ship::KEY`, the handler key.
///
/// ```
/// use oncebox::{BoxError, Context, Inbox, Memory, Message};
///
/// #[oncebox::handler(key = "ship-order", types = ["order.placed"], retry = "quick", timeout = "30s")]
/// async fn ship(message: Message, _cx: &mut Context<Memory>) -> Result<(), BoxError> {
///     println!("shipping {}", message.message_type());
///     Ok(())
/// }
///
/// # fn main() -> Result<(), BoxError> {
/// let inbox = Inbox::builder("orders", Memory::new()).register(ship::registration()).build()?;
/// assert_eq!(ship::KEY, "ship-order");
/// # Ok(()) }
/// ```
///
/// # Options
///
/// | option | what it sets |
/// |---|---|
/// | `key = "ship-order"` | the handler key; the only option that must be there |
/// | `legacy = ["order-handler"]` | keys it had before |
/// | `types = ["order.placed"]` | the message types that `InboxBuilder::register` registers it for |
/// | `retry = "quick"`, `"patient"`, `"never"` | `Retry::quick()`, `Retry::patient()`, `Retry::never()` |
/// | `retry(attempts = 5, first = "1s", max = "1m")` | a `Retry`; what is left out is as in `Retry::default()` |
/// | `retry_for(std::io::Error = "never", Busy(attempts = 3))` | `Registration::retry_for`, in this order; the rules are those of `retry` |
/// | `crashes = 3`, `crash_delay = "10s"` | `Policy::crashes`, `Policy::crash_delay` |
/// | `decode_grace = "1h"`, `decode_retry = "1m"` | `Policy::decode_grace`, `Policy::decode_retry` |
/// | `on_poisoned = "block"`, `"skip"`, `"park"` | `Registration::on_poisoned` |
/// | `timeout = "30s"` | `Registration::timeout` |
/// | `concurrency = 8` | `Registration::concurrency` |
/// | `rate = "20/s"`, `"30/min"`, `"10/h"`, `rate(count = 20, per = "1s", burst = 50)` | `Registration::rate` |
/// | `breaker(failures = 5, pause = "30s", max_pause = "10m")` | `Registration::breaker`; `max_pause` may be left out |
/// | `dedupe = "id"`, `"content"`, `"cloudevents"`, `"off"` | `Registration::dedupe` |
/// | `dedupe(header = "order-id")`, `dedupe(pointer = "/order/id")` | the same, by a header or a field of the payload |
/// | `retention = "30d"`, `"forever"` | `Registration::retention` |
/// | `undoable` | `Registration::undoable` |
/// | `inline` | `Registration::inline` |
/// | `fire_and_forget` | `Registration::fire_and_forget` |
/// | `share_commit = 64` | `Registration::share_commit` |
///
/// Durations are a whole number and one of `ms`, `s`, `m`, `h` and `d`. The compiler checks keys, durations, and that the function
/// is a handler. A function that is generic over its store gives a generic registration.
///
/// Settings in code override the attribute: `ship::registration().concurrency(2)` runs two at once, and `builder.on("order.paid",
/// ship::registration())` uses other types.
#[proc_macro_attribute]
pub fn handler(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(options.into(), &function.into()).into()
}
