-- Removes runs with their waits and leaves tombstones, unless a row is not as it was judged, or was forked since.
-- Returns 1 for each that it removed, else 0.
-- ARGV, for each: run, head, expiry and pin as they were ('=' before what there is), reason, summary, row of the audit log.
local EACH, now, gone = 7, clock(), {}

local function marked(value)
  return value and '=' .. value or ''
end

local function erase_wait(wait_id)
  local w = redis.call('HMGET', wait_of(wait_id), 'flow', 'kind', 'token', 'status')
  for _, index in ipairs({ 'waits', 'waits:' .. w[4], 'waits:flow:' .. w[1], 'waits:untold', 'timers' }) do
    redis.call('ZREM', P .. index, wait_id)
  end
  if w[3] and redis.call('HGET', P .. 'tokens', w[3]) == wait_id then
    redis.call('HDEL', P .. 'tokens', w[3])
  end
  if w[4] == 'open' then
    count_open(w[2], -1)
  end
  local topic = redis.call('HGET', wait_of(wait_id), 'topic')
  if topic and string.sub(topic, 1, 6) == 'event:' then
    listen(wait_id, topic, prefix_in(topic), nil)
  end
  redis.call('DEL', wait_of(wait_id))
end

local function leave_tombstone(run_id, n, flow, created, reason, summary)
  local number = redis.call('INCR', P .. 'tombstones:number')
  redis.call('HSET', tomb_of(run_id), 'n', n, 'number', number, 'flow', flow, 'created', created, 'erased', now,
    'reason', reason)
  if summary ~= '' then
    redis.call('HSET', tomb_of(run_id), 'summary', string.sub(summary, 2))
  end
  redis.call('ZADD', P .. 'tombstones', number, run_id)
  redis.call('ZADD', P .. 'tombstones:flow:' .. flow, number, run_id)
end

local function erase(run_id, head, expires, pinned, reason, summary, audit)
  local row = row_of(run_id)
  local f = redis.call('HMGET', row, 'head', 'expires', 'pinned', 'n', 'flow', 'hash', 'status', 'created', 'parent',
    'priority', 'group', 'started_by', 'noticed')
  if f[1] ~= head or marked(f[2]) ~= expires or marked(f[3]) ~= pinned
    or redis.call('EXISTS', P .. 'forks:' .. run_id) == 1 then
    return 0
  end
  local n, flow, status = f[4], f[5], f[7]
  for _, wait_id in ipairs(redis.call('ZRANGE', P .. 'waits:run:' .. run_id, 0, -1)) do
    erase_wait(wait_id)
  end
  line_up(run_id, n, nil, version_of(flow, f[6]), f[10] or '0', f[11] or '')
  note_lease(run_id, nil, flow, f[11])
  if not FINAL[status] then
    count_unfinished(flow, f[6], -1)
  end
  for _, index in ipairs({ 'runs', 'flow:' .. flow, 'status:' .. status, 'status:' .. status .. ':' .. flow, 'repair',
      'kept' }) do
    redis.call('ZREM', P .. index, run_id)
  end
  if f[9] then
    redis.call('ZREM', P .. 'forks:' .. f[9], run_id)
    redis.call('ZREM', P .. 'pins:' .. f[9], run_id)
  end
  if f[12] then
    redis.call('ZREM', started_of(f[12]), run_id)
  end
  local own = {}
  if f[13] then
    for _, number in ipairs(redis.call('ZRANGE', P .. 'notices:run:' .. run_id, 0, -1)) do
      for _, index in ipairs({ '', ':pending', ':sent', ':dead', ':due' }) do
        redis.call('ZREM', P .. 'notices' .. index, number)
      end
      redis.call('UNLINK', P .. 'notice:' .. number)
    end
    redis.call('UNLINK', P .. 'notices:run:' .. run_id)
  end
  for k, kind in ipairs({ 'waits:run:', 'waits:unclosed:', 'wakes:', 'keyframes:', 'pins:', 'chain:', 'live:', 'logs:' }) do
    own[k] = P .. kind .. run_id
  end
  for number = 1, redis.call('HLEN', inbox_of(n) .. ':ids') do
    own[#own + 1] = signal_of(n, number)
  end
  for _, number in ipairs(redis.call('ZRANGE', inbox_of(n), 0, -1)) do
    own[#own + 1] = untaken_of(n, redis.call('HGET', signal_of(n, number), 'name'))
  end
  own[#own + 1] = inbox_of(n)
  own[#own + 1] = inbox_of(n) .. ':ids'
  for _, path in ipairs(redis.call('SMEMBERS', P .. 'had:' .. n)) do
    own[#own + 1] = had_of(n, path)
  end
  own[#own + 1] = P .. 'had:' .. n
  own[#own + 1] = tags_of(n)
  own[#own + 1] = attributes_of(n)
  redis.call('UNLINK', row)
  for first = 1, #own, 1000 do
    redis.call('UNLINK', unpack(own, first, math.min(first + 999, #own)))
  end
  leave_tombstone(run_id, n, flow, f[8], reason, summary)
  tell(audit)
  return 1
end

for at = 2, #ARGV, EACH do
  gone[#gone + 1] = erase(unpack(ARGV, at, at + EACH - 1))
end
announce()
return gone
