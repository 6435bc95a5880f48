// The dedupe key and the fingerprint of a message, as docs/keys.md describes them. Reads the test vectors, prints what it computes.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

function digest(purpose, ...parts) {
  const sha = createHash('sha256').update(Buffer.from([1])).update(purpose)
  for (const part of parts) {
    const length = Buffer.alloc(8)
    length.writeBigUInt64BE(BigInt(part.length))
    sha.update(length).update(part)
  }
  return sha.digest()
}

const scoped = (plain, tenanted, inbox, tenant, ...parts) =>
  tenant === null ? digest(plain, inbox, ...parts) : digest(tenanted, inbox, tenant, ...parts)
const key = (inbox, tenant, source, ...parts) => scoped('k', 'K', inbox, tenant, source, ...parts)
const order = (inbox, tenant, source, orderingKey) => scoped('o', 'O', inbox, tenant, source, orderingKey).subarray(0, 16)
const fingerprint = (type, content) =>
  Buffer.concat([digest('t', type).subarray(0, 4), digest('f', type, content).subarray(4, 16)])

const value = (field) =>
  field === null ? null : Buffer.concat(Array(field.times ?? 1).fill(Buffer.from(field.hex, 'hex')))

for (const vector of JSON.parse(readFileSync(process.argv[2])).vectors) {
  const [inbox, tenant, source, id, type, payload, orderingKey] =
    ['inbox', 'tenant', 'source', 'id', 'type', 'payload', 'ordering_key'].map((name) => value(vector[name]))
  console.log(
    vector.name,
    key(inbox, tenant, source, Buffer.from('id'), id).toString('hex'),
    fingerprint(type, payload).toString('hex'),
    order(inbox, tenant, source, orderingKey).toString('hex'),
  )
}
