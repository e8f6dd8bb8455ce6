-- Keeps a whole run of another store. Nothing is written before all is checked.
-- ARGV: run, sequence and id of its newest record, the base of a fork, what else it brings, first sequence, records.
-- Returns the verdict; of a run that is there also its newest sequence, and the ids there and at ours.
local run_id, sequence = ARGV[2], tonumber(ARGV[3])
local run = cmsgpack.unpack(ARGV[6])
local row, chain = row_of(run_id), P .. 'chain:' .. run_id

local function id_at(of, first, at)
  local record = at >= first and redis.call('LINDEX', P .. 'chain:' .. of, at - first)
  if not record then
    return ''
  end
  local high, low = string.byte(record, 2, 3)
  return string.sub(record, 4, 3 + high * 256 + low)
end

local there = redis.call('HMGET', row, 'head', 'forked')
if there[1] then
  local newest, first = tonumber(there[1]), tonumber(there[2] or 0) + 1
  return { 'there', newest, id_at(run_id, first, newest), id_at(run_id, first, sequence) }
end
if run.forked then
  local parent = redis.call('HMGET', row_of(run.parent), 'head', 'forked', 'trimmed')
  if not parent[1] or run.forked < tonumber(parent[3] or 0)
    or id_at(run.parent, tonumber(parent[2] or 0) + 1, run.forked) ~= ARGV[5] then
    return { 'no_base' }
  end
end
for _, wait in ipairs(run.waits) do
  if redis.call('EXISTS', wait_of(wait.id)) == 1 then
    return redis.error_reply('WAITEXISTS ' .. wait.id)
  end
  if wait.token and redis.call('HEXISTS', P .. 'tokens', wait.token) == 1 then
    return redis.error_reply('TOKENEXISTS ' .. wait.id)
  end
end

local buried = redis.call('HGET', tomb_of(run_id), 'flow')
if buried then
  redis.call('DEL', tomb_of(run_id))
  redis.call('ZREM', P .. 'tombstones', run_id)
  redis.call('ZREM', P .. 'tombstones:flow:' .. buried, run_id)
end
local n = redis.call('INCR', P .. 'runs:number')
local epoch = string.format('%.0f', n * run.epochs)
redis.call('HSET', row, 'n', n, 'epoch', epoch, 'claimed', ARGV[3], 'head', ARGV[3], 'id', ARGV[4], unpack(run.fields))
local f = redis.call('HMGET', row, 'flow', 'hash', 'status', 'parent', 'repair', 'pinned', 'started_by')
local flow, status = f[1], f[3]
redis.call('ZADD', P .. 'runs', n, run_id)
redis.call('ZADD', P .. 'flow:' .. flow, n, run_id)
redis.call('ZADD', P .. 'status:' .. status, n, run_id)
redis.call('ZADD', P .. 'status:' .. status .. ':' .. flow, n, run_id)
if f[4] then
  redis.call('ZADD', P .. 'forks:' .. f[4], n, run_id)
  if run.forked then
    redis.call('ZADD', P .. 'pins:' .. f[4], run.forked, run_id)
  end
end
if f[7] then
  redis.call('ZADD', started_of(f[7]), n, run_id)
end
if f[5] then
  redis.call('ZADD', P .. 'repair', n, run_id)
end
if f[6] then
  redis.call('ZADD', P .. 'kept', n, run_id)
end
for _, structure in ipairs(run.structures) do
  keep_structure(structure[1], structure[2])
end
if not FINAL[status] then
  count_unfinished(flow, f[2], 1)
end
local at = tonumber(ARGV[7])
for k = 8, #ARGV do
  redis.call('RPUSH', chain, ARGV[k])
  if string.byte(ARGV[k], 1) == 107 then
    redis.call('ZADD', P .. 'keyframes:' .. run_id, at, at)
  end
  at = at + 1
end
for _, wait in ipairs(run.waits) do
  open_wait(run_id, status, wait.fields)
  local topic = redis.call('HGET', wait_of(wait.id), 'topic')
  if topic and string.sub(topic, 1, 6) == 'event:' and redis.call('HGET', wait_of(wait.id), 'status') == 'open' then
    listen(wait.id, topic, prefix_in(topic), redis.call('HGET', wait_of(wait.id), 'n'))
  end
end
for _, signal in ipairs(run.inbox or {}) do
  redis.call('HSET', signal_of(n, signal.number), unpack(signal.fields))
  redis.call('HSET', inbox_of(n) .. ':ids', signal.id, signal.number)
  if not signal.taken then
    keep_untaken(n, signal.number, redis.call('HGET', signal_of(n, signal.number), 'name'))
  end
end
for _, had in ipairs(run.had or {}) do
  redis.call('SADD', had_of(n, had[1]), event_of(had[2], had[3]))
  redis.call('SADD', P .. 'had:' .. n, had[1])
end
if run.audit then
  keep_audit(run.audit)
end
if run.tags then
  redis.call('HSET', tags_of(n), unpack(run.tags))
end
if run.attributes then
  redis.call('HSET', attributes_of(n), unpack(run.attributes))
end
if run.undoing then
  redis.call('HSET', row_of(run_id), 'undoing', run.undoing)
end
if run.told then
  redis.call('HSET', row, 'told', run.told)
end
for _, fields in ipairs(run.notices or {}) do
  local number = redis.call('INCR', P .. 'notices:number')
  redis.call('HSET', P .. 'notice:' .. number, 'run', run_id, 'number', number, unpack(fields))
  redis.call('ZADD', P .. 'notices', number, number)
  redis.call('ZADD', P .. 'notices:run:' .. run_id, number, number)
  redis.call('HSET', row, 'noticed', 1)
  place_notice(number)
end
reckon(run_id)
announce()
return { 'restored' }
