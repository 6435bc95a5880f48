//! Checks the addresses of deliveries. Tests: below and `tests/serve/network.rs`.
//!
//! Refuses every non-public address unless the configuration allows it. The name of a handler may resolve to any address, and
//! services near the process (metadata services, databases) trust their neighbours.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network: an address and a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    bits: u128,
    length: u8,
    v4: bool,
}

impl Network {
    const fn v4(address: Ipv4Addr, length: u8) -> Self {
        Self { bits: (address.to_bits() as u128) << 96, length, v4: true }
    }

    const fn v6(address: Ipv6Addr, length: u8) -> Self {
        Self { bits: address.to_bits(), length, v4: false }
    }

    fn contains(self, address: IpAddr) -> bool {
        let (bits, v4) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, true),
            IpAddr::V6(address) => (address.to_bits(), false),
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
        v4 == self.v4 && (bits ^ self.bits) & mask == 0
    }
}

impl Network {
    /// Returns true if the network has only this address.
    fn is_only(self, address: IpAddr) -> bool {
        self.length == if self.v4 { 32 } else { 128 } && self.contains(address)
    }
}

impl FromStr for Network {
    type Err = &'static str;

    /// `10.0.0.0/8`, `fd00::/8`, or a single address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "write it like \"10.0.0.0/8\", \"fd00::/8\" or \"192.168.1.7\"";
        let (address, length) =
            text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| FORM)?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(max), str::parse::<u8>).map_err(|_| FORM)?;
        if length > max {
            return Err("the prefix length exceeds the length of the address");
        }
        let network = match address {
            IpAddr::V4(address) => Self::v4(address, length),
            IpAddr::V6(address) => Self::v6(address, length),
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        if network.bits & !mask != 0 {
            return Err(
                "the address has bits beyond the prefix length; shorten the address or raise the length",
            );
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.v4 {
            let bits = u32::try_from(self.bits >> 96).unwrap_or_default();
            write!(f, "{}/{}", Ipv4Addr::from_bits(bits), self.length)
        } else {
            write!(f, "{}/{}", Ipv6Addr::from_bits(self.bits), self.length)
        }
    }
}

/// Kind of a non-public address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// The metadata service of a cloud, which returns credentials.
    Metadata,
    /// Another non-public address, with its description.
    Other(&'static str),
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::Metadata => "the address of a cloud's metadata service",
            Self::Other(what) => what,
        })
    }
}

const fn four(a: u8, b: u8, c: u8, length: u8) -> Network {
    Network::v4(Ipv4Addr::new(a, b, c, 0), length)
}

const fn six(a: u16, b: u16, c: u16, length: u8) -> Network {
    Network::v6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), length)
}

const fn only(a: u8, b: u8, c: u8, d: u8) -> Network {
    Network::v4(Ipv4Addr::new(a, b, c, d), 32)
}

/// The special-purpose registries of IANA, and what is like them; before them the metadata services of clouds. The first that fits
/// counts.
const SPECIAL: &[(Network, Special)] = &[
    // AWS, Azure, Google Cloud, OpenStack and others.
    (only(169, 254, 169, 254), Special::Metadata),
    (Network::v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128), Special::Metadata),
    // AWS: the credentials of a task, and of a pod.
    (only(169, 254, 170, 2), Special::Metadata),
    (only(169, 254, 170, 23), Special::Metadata),
    // Oracle Cloud.
    (only(192, 0, 0, 192), Special::Metadata),
    // Scaleway.
    (only(169, 254, 42, 42), Special::Metadata),
    (Network::v6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128), Special::Metadata),
    // Tencent Cloud.
    (only(169, 254, 0, 23), Special::Metadata),
    // Alibaba Cloud.
    (only(100, 100, 100, 200), Special::Metadata),
    // Azure: a public address that every machine there reaches without leaving its host.
    (only(168, 63, 129, 16), Special::Metadata),
    // AWS: metadata, pod identity, time and names.
    (six(0xfd00, 0xec2, 0, 32), Special::Metadata),
    // Google Cloud.
    (six(0xfd20, 0xce, 0, 32), Special::Metadata),
    (four(0, 0, 0, 8), Special::Other("an address of \"this network\"")),
    (four(10, 0, 0, 8), Special::Private),
    (four(100, 64, 0, 10), Special::Private),
    (four(127, 0, 0, 8), Special::Loopback),
    (four(169, 254, 0, 16), Special::Other("a link-local address, where metadata services are")),
    (four(172, 16, 0, 12), Special::Private),
    (four(192, 0, 0, 24), Special::Other("an address of a protocol")),
    (four(192, 0, 2, 24), Special::Other("an address for documentation")),
    (four(192, 31, 196, 24), Special::Other("an anycast address of a protocol")),
    (four(192, 52, 193, 24), Special::Other("an anycast address of a protocol")),
    (four(192, 88, 99, 24), Special::Other("a 6to4 relay")),
    (four(192, 168, 0, 16), Special::Private),
    (four(192, 175, 48, 24), Special::Other("an anycast address of a protocol")),
    (four(198, 18, 0, 15), Special::Other("an address for benchmarks")),
    (four(198, 51, 100, 24), Special::Other("an address for documentation")),
    (four(203, 0, 113, 24), Special::Other("an address for documentation")),
    (four(224, 0, 0, 4), Special::Other("a multicast address")),
    (four(240, 0, 0, 4), Special::Other("a reserved address")),
    (Network::v6(Ipv6Addr::LOCALHOST, 128), Special::Loopback),
    (Network::v6(Ipv6Addr::UNSPECIFIED, 96), Special::Other("an unspecified address")),
    (six(0x64, 0xff9b, 0, 96), Special::Other("a NAT64 address")),
    (six(0x64, 0xff9b, 1, 48), Special::Other("a NAT64 address")),
    (six(0x100, 0, 0, 64), Special::Other("an address that discards")),
    (six(0x2001, 0, 0, 23), Special::Other("an address of a protocol")),
    (six(0x2001, 0xdb8, 0, 32), Special::Other("an address for documentation")),
    (six(0x2002, 0, 0, 16), Special::Other("a 6to4 address")),
    (six(0x3fff, 0, 0, 20), Special::Other("an address for documentation")),
    (six(0x5f00, 0, 0, 16), Special::Other("a segment routing address")),
    (six(0xfc00, 0, 0, 7), Special::Private),
    (six(0xfe80, 0, 0, 10), Special::Other("a link-local address, where metadata services are")),
    (six(0xfec0, 0, 0, 10), Special::Private),
    (six(0xff00, 0, 0, 8), Special::Other("a multicast address")),
];

/// Returns the IPv4 addresses that an IPv6 address may lead to: its last 32 bits (mapped, compatible, NAT64 with any prefix of 96 bits),
/// those of NAT64 with the local prefix of 48 bits, of 6to4, and of Teredo.
fn embedded(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let bytes = address.octets();
    let at = |places: [usize; 4]| Ipv4Addr::from(places.map(|place| bytes[place]));
    let nat64 = bytes.starts_with(&[0, 0x64, 0xff, 0x9b, 0, 1]).then(|| at([6, 7, 9, 10]));
    let six_to_four = bytes.starts_with(&[0x20, 0x02]).then(|| at([2, 3, 4, 5]));
    let teredo =
        bytes.starts_with(&[0x20, 0x01, 0, 0]).then(|| at([12, 13, 14, 15]).octets().map(|byte| !byte));
    [Some(at([12, 13, 14, 15])), nat64, six_to_four, teredo.map(Ipv4Addr::from)].into_iter().flatten()
}

/// Returns the metadata service that an address leads to by translation.
fn translated_metadata(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else { return None };
    let mut embedded = embedded(address).map(IpAddr::V4);
    embedded.find(|address| special(*address) == Some(Special::Metadata))
}

/// Returns the kind of a non-public address.
fn special(address: IpAddr) -> Option<Special> {
    let found = SPECIAL.iter().find(|(network, _)| network.contains(address));
    let beyond = || match address {
        // IANA has allocated only this part of IPv6.
        IpAddr::V6(v6) => (v6.segments()[0] >> 13 != 1).then_some(Special::Other("a reserved address")),
        IpAddr::V4(_) => None,
    };
    found.map(|(_, special)| *special).or_else(beyond)
}

/// Non-public addresses that are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// This machine and private networks.
    pub(crate) private: bool,
    /// All addresses in these networks.
    pub(crate) networks: Vec<Network>,
}

impl Allowed {
    /// Refuses an address that is neither public nor allowed. Checks an IPv4-mapped IPv6 address as IPv4.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), Special> {
        let address = address.to_canonical();
        // NAT64 and the like lead to it, whatever the address itself is allowed for.
        if let Some(service) =
            translated_metadata(address).filter(|_| special(address) != Some(Special::Metadata))
        {
            let named = |network: &Network| network.is_only(service) || network.is_only(address);
            return if self.networks.iter().any(named) { Ok(()) } else { Err(Special::Metadata) };
        }
        match special(address) {
            None => Ok(()),
            // A metadata service must be listed by its own address, even inside an allowed network.
            Some(Special::Metadata) if self.networks.iter().any(|network| network.is_only(address)) => Ok(()),
            Some(Special::Metadata) => Err(Special::Metadata),
            Some(_) if self.networks.iter().any(|network| network.contains(address)) => Ok(()),
            Some(Special::Loopback | Special::Private) if self.private => Ok(()),
            Some(special) => Err(special),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allowed: &Allowed, address: &str) -> Result<(), Special> {
        allowed.check(address.parse().unwrap())
    }

    /// FAULTS S16: every non-public range, in every notation.
    #[test]
    fn only_public_addresses_are_allowed_by_themselves() {
        let none = Allowed::default();
        for address in ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00::1"]
        {
            assert_eq!(check(&none, address), Ok(()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
            "::ffff:168.63.129.16",
        ] {
            assert!(check(&none, address).is_err(), "{address}");
        }
    }

    #[test]
    fn private_networks_are_allowed_together_and_the_rest_by_name_alone() {
        let private = Allowed { private: true, networks: Vec::new() };
        for address in
            ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "fd00::1", "::ffff:10.0.0.1", "100.64.1.1"]
        {
            assert_eq!(check(&private, address), Ok(()), "{address}");
        }
        for address in
            ["169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1", "64:ff9b::a00:1", "255.255.255.255"]
        {
            assert!(check(&private, address).is_err(), "{address}");
        }
        let named = Allowed { private: false, networks: vec!["169.254.169.0/24".parse().unwrap()] };
        assert_eq!(check(&named, "169.254.169.7"), Ok(()));
        assert_eq!(check(&named, "::ffff:169.254.169.7"), Ok(()));
        assert!(check(&named, "169.254.170.1").is_err());
        assert!(check(&named, "127.0.0.1").is_err());
    }

    // FAULTS S16: nor does a translated address lead there, whatever networks are allowed.
    #[test]
    fn metadata_services_are_not_reached_by_translation() {
        let all = ["64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/0"];
        let all = Allowed { private: true, networks: all.map(|text| text.parse().unwrap()).to_vec() };
        for address in [
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::6464:64c8",
            "64:ff9b::a83f:8110",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::",
            "2002:6464:64c8::1",
            "2001:0:1:2::5601:5601",
            "2600:1:2:3::a9fe:a9fe",
        ] {
            for allowed in [&Allowed::default(), &all] {
                assert_eq!(check(allowed, address), Err(Special::Metadata), "{address}");
            }
        }
        for address in ["64:ff9b::808:808", "2002:808:808::", "2001:0:1:2::f7f7:f7f7"] {
            assert_eq!(check(&all, address), Ok(()), "{address}");
        }
        let named = Allowed { private: false, networks: vec!["169.254.169.254".parse().unwrap()] };
        assert_eq!(check(&named, "64:ff9b::a9fe:a9fe"), Ok(()));
    }

    // FAULTS S16: an allowed private network does not include the metadata service of the machine.
    #[test]
    fn metadata_services_are_allowed_by_their_own_address_alone() {
        let wide = [
            "0.0.0.0/0",
            "::/0",
            "100.64.0.0/10",
            "168.63.0.0/16",
            "169.254.0.0/16",
            "169.254.169.0/24",
            "192.0.0.0/24",
            "fd00::/8",
            "fd00:ec2::/32",
            "fe80::/10",
        ];
        let networks: Vec<Network> = wide.iter().map(|text| text.parse().unwrap()).collect();
        for address in [
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd00:42::42",
            "fe80::a9fe:a9fe",
            "100.100.100.200",
            "168.63.129.16",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.42.42",
            "169.254.0.23",
            "192.0.0.192",
        ] {
            for allowed in [
                Allowed { private: true, networks: Vec::new() },
                Allowed { private: true, networks: networks.clone() },
            ] {
                assert_eq!(check(&allowed, address), Err(Special::Metadata), "{address}");
            }
            let own = address.trim_start_matches("::ffff:").parse().unwrap();
            let named = Allowed { private: false, networks: vec![own] };
            assert_eq!(check(&named, address), Ok(()), "{address}");
        }
        let wide = Allowed { private: false, networks };
        for address in
            ["100.100.100.201", "168.63.129.17", "169.254.170.1", "192.0.0.1", "fd00::1", "fe80::1"]
        {
            assert_eq!(check(&wide, address), Ok(()), "{address}");
        }
    }

    #[test]
    fn networks_are_read_strictly() {
        for (text, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("192.168.1.7", "192.168.1.7", true),
            ("192.168.1.7", "192.168.1.8", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "2a00::1", false),
            ("fd00::/8", "fdff::1", true),
            ("::1", "::1", true),
        ] {
            let network: Network = text.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{text} {address}");
            assert!(network.to_string().starts_with(text), "{network}");
        }
        for text in ["10.0.0.1/8", "10.0.0.0/33", "fd00::/129", "ten", "10.0.0.0/", "10.0.0.0/-1", ""] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
