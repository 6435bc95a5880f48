//! Invalid configurations of endpoints.

use oncebox::{ErrorKind, Inbox, Memory};
use oncebox_http::{Endpoint, Ingress, Quota, Verify};

#[tokio::test]
async fn what_cannot_be_meant_is_refused_at_the_start() {
    let inbox = Inbox::builder("in", Memory::new()).build().unwrap();
    let open = |name: &str| Endpoint::plain(name).verify(Verify::open());
    let start = |endpoints: Vec<Endpoint>| {
        let add = |ingress: Ingress, endpoint| ingress.endpoint(endpoint, &inbox);
        endpoints.into_iter().fold(Ingress::new(), add).into_router()
    };
    assert!(start(vec![open("a"), open("b")]).is_ok());
    for (endpoints, why) in [
        (vec![Endpoint::plain("a")], "does not say who may send"),
        (vec![Endpoint::cloud_events("a")], "does not say who may send"),
        (vec![open("")], "has a name that none can have"),
        (vec![open("a b")], "has a name that none can have"),
        (vec![open("a"), open("a").path("/b")], "two endpoints are named"),
        (vec![open("a").path("/x"), open("b").path("/x")], "two endpoints have the path"),
        (vec![open("a").path("x")], "cannot have the path"),
        (vec![open("a").path("/{x}")], "cannot have the path"),
        (vec![open("a").quota(Quota { per_second: 0.0, burst: 1 })], "takes nothing"),
        (vec![open("a").max_body(0)], "takes nothing"),
        (vec![Endpoint::cloud_events("a").verify(Verify::open()).message_type("t")], "a type of their own"),
    ] {
        let error = start(endpoints).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.what().contains(why), "{error}");
    }
    for prefix in ["in", "/in/", "/{in}"] {
        assert!(Ingress::new().at(prefix).endpoint(open("a"), &inbox).into_router().is_err(), "{prefix}");
    }
    assert!(Verify::tokens(Vec::<String>::new()).is_err() && Verify::tokens([""]).is_err());
    assert!(Endpoint::github("g", Vec::<String>::new()).is_err() && Endpoint::github("g", [""]).is_err());
    assert!(Endpoint::github("g", ["s"]).unwrap().id_header("x").is_err());
}
