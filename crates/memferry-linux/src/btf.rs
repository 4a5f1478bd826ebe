// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the running kernel keeps fields of its structs, by /sys/kernel/btf/vmlinux. It reads what the BPF program of
//! [`mappings`](crate::mappings) needs, and no more of the format.

use std::io;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNC: u32 = 12;

/// A type: its kind, where its name and its members stand, how many it has, and what it refers to.
struct Type {
    kind: u32,
    name: usize,
    members: usize,
    count: usize,
    of: u32,
}

/// The kernel's types.
pub(crate) struct Btf {
    bytes: Vec<u8>,
    strings: usize,
    /// Types by their number less 1.
    types: Vec<Type>,
}

fn broken(what: &str) -> io::Error {
    let text = format!("/sys/kernel/btf/vmlinux: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn word(bytes: &[u8], at: usize) -> io::Result<u32> {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map(u32::from_ne_bytes)
        .ok_or_else(|| broken("it ends too early"))
}

impl Btf {
    /// Takes the text of the file.
    ///
    /// # Errors
    /// It is no BTF, or has kinds that are not known: behind them nothing can be found.
    pub(crate) fn parse(bytes: Vec<u8>) -> io::Result<Btf> {
        if bytes.get(..2) != Some(&MAGIC.to_ne_bytes()) {
            return Err(broken("no BTF of this machine's byte order"));
        }
        let header = word(&bytes, 4)? as usize;
        if header < HEADER {
            return Err(broken("its header is too short"));
        }
        let mut at = header + word(&bytes, 8)? as usize;
        let end = at + word(&bytes, 12)? as usize;
        let strings = header + word(&bytes, 16)? as usize;
        let mut types = Vec::new();
        while at < end {
            let field = |offset| word(&bytes, at + offset);
            let (name, info, of) = (field(0)?, field(4)?, field(8)?);
            let kind = info >> 24 & 0x1f;
            let count = (info & 0xffff) as usize;
            let members = at + 12;
            at = members
                + match kind {
                    // Integers, variables and tags of declarations have a word more.
                    1 | 14 | 17 => 4,
                    // Pointers, forward declarations, typedefs, modifiers, functions, floats, tags of types.
                    2 | 7..=12 | 16 | 18 => 0,
                    // Arrays.
                    3 => 12,
                    // Structs, unions, sections of data, enums of 64 bits.
                    4 | 5 | 15 | 19 => 12 * count,
                    // Enums, prototypes.
                    6 | 13 => 8 * count,
                    _ => return Err(broken(&format!("kind {kind} is not known"))),
                };
            types.push(Type {
                kind,
                name: name as usize,
                members,
                count,
                of,
            });
        }
        Ok(Btf {
            bytes,
            strings,
            types,
        })
    }

    fn string(&self, at: usize) -> &[u8] {
        let text = self.bytes.get(self.strings + at..).unwrap_or_default();
        text.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn find(&self, kinds: &[u32], name: &str) -> io::Result<u32> {
        let is_it = |of: &Type| kinds.contains(&of.kind) && self.string(of.name) == name.as_bytes();
        let index = self.types.iter().position(is_it);
        let number = index.and_then(|index| u32::try_from(index + 1).ok());
        number.ok_or_else(|| broken(&format!("this kernel has no {name}")))
    }

    /// The number of a function.
    pub(crate) fn function(&self, name: &str) -> io::Result<u32> {
        self.find(&[FUNC], name)
    }

    /// Bytes from the start of a struct to a field, which may be one of a struct within it: `policy.root`.
    pub(crate) fn offset(&self, of: &str, path: &str) -> io::Result<i32> {
        let mut at = self.find(&[STRUCT], of)?;
        let mut bits = 0;
        for name in path.split('.') {
            let found = self.member(at, name.as_bytes(), 8);
            let (offset, next) =
                found.ok_or_else(|| broken(&format!("this kernel's {of} has no {path}")))?;
            (at, bits) = (next, bits + offset);
        }
        i32::try_from(bits / 8).map_err(|_| broken("an offset is too large"))
    }

    /// Bits to a field of a struct, and the field's type. Fields of what has no name are the struct's own, so many levels deep at most.
    fn member(&self, number: u32, name: &[u8], depth: u32) -> Option<(u32, u32)> {
        let of = self.types.get(number.checked_sub(1)? as usize)?;
        match of.kind {
            STRUCT | UNION => {}
            // A typedef or a modifier.
            8..=11 | 18 if depth > 0 => return self.member(of.of, name, depth - 1),
            _ => return None,
        }
        for index in 0..of.count {
            let field = |at| word(&self.bytes, of.members + 12 * index + at).ok();
            // Of bit fields the upper bits are the width; none is asked for.
            let (own, kind, offset) = (field(0)?, field(4)?, field(8)? & 0xff_ffff);
            let own = self.string(own as usize);
            if own == name {
                return Some((offset, kind));
            }
            if own.is_empty() && depth > 0 {
                if let Some((within, kind)) = self.member(kind, name, depth - 1) {
                    return Some((offset + within, kind));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// struct s { 8 bytes; union { u64 a; }; struct { 4 bytes; u64 c; } b; }, where b's type is a typedef, and a function f.
    fn bytes() -> Vec<u8> {
        let strings = b"\0s\0a\0b\0c\0f\0";
        let kind = |kind: u32, count: u32| kind << 24 | count;
        let types: Vec<u32> = [
            &[0, kind(1, 0), 8, 64][..],
            &[0, kind(UNION, 1), 8, 3, 1, 0],
            &[1, kind(STRUCT, 2), 40, 0, 2, 64, 5, 4, 128],
            &[0, kind(8, 0), 5],
            &[0, kind(STRUCT, 1), 12, 7, 1, 32],
            &[9, kind(FUNC, 0), 1],
        ]
        .concat();
        let length = 4 * types.len() as u32;
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let header = [HEADER as u32, 0, length, length, strings.len() as u32];
        for word in header.iter().chain(&types) {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn fields_are_found_through_unions_and_typedefs() {
        let btf = Btf::parse(bytes()).unwrap();
        assert_eq!(btf.offset("s", "a").unwrap(), 8);
        assert_eq!(btf.offset("s", "b.c").unwrap(), 20);
        assert_eq!(btf.function("f").unwrap(), 6);
        let missing = btf.offset("s", "c").unwrap_err().to_string();
        assert!(missing.ends_with("this kernel's s has no c"), "{missing}");
        assert!(btf.function("s").is_err());
    }

    #[test]
    fn a_file_that_is_cut_is_an_error() {
        let whole = bytes();
        for length in 0..whole.len() - 11 {
            assert!(Btf::parse(whole[..length].to_vec()).is_err(), "{length}");
        }
        let unknown = [
            whole[..28].to_vec(),
            31_u32.rotate_left(24).to_ne_bytes().to_vec(),
        ]
        .concat();
        assert!(Btf::parse(unknown).is_err());
    }
}
