-- What every script begins with: the names of keys, and how a run's places in the indexes follow from its row.
-- A row is a hash; a field that is not there is none. Times are whole microseconds since 1970, as text.
local P = KEYS[1]
local FINAL = { completed = true, failed = true, cancelled = true, abandoned = true }

local function whole(number)
  return string.format('%.0f', number)
end

-- The time of the server, which stands still while a script runs, unless a test brings its own.
local the_time = ARGV[1] ~= '' and ARGV[1]
local function clock()
  if not the_time then
    local at = redis.call('TIME')
    the_time = at[1] .. string.rep('0', 6 - #at[2]) .. at[2]
  end
  return the_time
end

-- Others hear that there is something new; no client needs to be listening.
local function announce()
  redis.call('PUBLISH', P .. 'changes', '')
end

local function row_of(run_id)
  return P .. 'run:' .. run_id
end

local function tomb_of(run_id)
  return P .. 'tombstone:' .. run_id
end

-- A run's number in the order of admission, also of one that was erased.
local function number_of(run_id)
  return redis.call('HGET', row_of(run_id), 'n') or redis.call('HGET', tomb_of(run_id), 'n')
end

-- The runs that nodes of a run started, by their numbers. `text` is what one of them says of its start, and its first
-- word the run.
local function started_of(text)
  return P .. 'started:' .. string.match(text, '^[^ ]*')
end

local function wait_of(wait_id)
  return P .. 'wait:' .. wait_id
end

local function version_of(flow, hash)
  return #flow .. ':' .. flow .. hash
end

-- The runs of a lane, that is of one version of a flow, priority and group, by when they are due.
local function lane_of(version, priority, group)
  return P .. 'due:' .. priority .. ':' .. #version .. ':' .. version .. group
end

-- The groups of a version and priority that have such runs, by the first of their times.
local function lanes_of(version, priority)
  return P .. 'lanes:' .. priority .. ':' .. version
end

-- A run's number comes first in its name there, so that of two that are due since the same time the older one does.
local function name_in_lane(run_id, n)
  return string.format('%016.0f', n) .. run_id
end

-- Puts a run into its lane, or takes it out.
local function line_up(run_id, n, at, version, priority, group)
  local lane, lanes = lane_of(version, priority, group), lanes_of(version, priority)
  local name, is_new = name_in_lane(run_id, n), false
  if at then
    is_new = redis.call('ZADD', lane, at, name) == 1
  elseif redis.call('ZREM', lane, name) == 0 then
    return
  end
  local first = redis.call('ZRANGE', lane, 0, 0, 'WITHSCORES')
  local is_first = first[1] == name
  if is_new and not is_first then
    return -- the lane was there, and begins as it did
  elseif first[2] then
    redis.call('ZADD', lanes, first[2], group)
    if is_new then
      redis.call('ZADD', P .. 'ranks:' .. version, priority, priority)
    end
  else
    redis.call('ZREM', lanes, group)
    if redis.call('EXISTS', lanes) == 0 then
      redis.call('ZREM', P .. 'ranks:' .. version, priority)
    end
  end
end

local function leases_of_group(flow, group)
  return P .. 'leases:group:' .. #flow .. ':' .. flow .. group
end

-- Keeps until when a lease holds, by flow and by group, so that quotas can be counted; none if it was given back.
local function note_lease(run_id, expires, flow, group)
  local keys = { P .. 'leases', P .. 'leases:flow:' .. flow }
  if group then
    keys[3] = leases_of_group(flow, group)
  end
  for _, key in ipairs(keys) do
    if expires then
      redis.call('ZADD', key, expires, run_id)
    else
      redis.call('ZREM', key, run_id)
    end
  end
end

-- Says whether a quota lets one more run of a flow, and of a group if one is named, be driven.
local function has_room(quota, flow, group, now)
  local function is_full(key, most)
    return most and redis.call('ZCOUNT', key, '(' .. now, '+inf') >= most
  end
  if not quota then
    return true
  end
  if is_full(P .. 'leases:flow:' .. flow, quota.running) then
    return false
  end
  if group and quota.paused and quota.paused[group] then
    return false
  end
  return not (group and group ~= '' and is_full(leases_of_group(flow, group), quota.per_group))
end

local function give_back(run_id, flow, group)
  redis.call('HDEL', row_of(run_id), 'owner', 'expires', 'process')
  note_lease(run_id, nil, flow, group)
end

-- Says since when, or from when on, a run is due, and puts it into its lane.
local function reckon(run_id)
  local f = redis.call('HMGET', row_of(run_id), 'status', 'flow', 'hash', 'created', 'expires', 'signal',
    'priority', 'group', 'repair', 'n')
  local status, expires, at = f[1], f[5], nil
  if not FINAL[status] and not f[9] then
    if f[6] then
      at = '-inf'
    elseif status == 'running' then
      -- The client that admitted it may have a clock that is ahead.
      local now = clock()
      at = tonumber(f[4]) < tonumber(now) and f[4] or now
    else
      at = redis.call('ZRANGE', P .. 'wakes:' .. run_id, 0, 0, 'WITHSCORES')[2]
    end
    if at and expires and (status == 'running' or at == '-inf' or tonumber(expires) > tonumber(at)) then
      at = expires
    end
  end
  line_up(run_id, f[10], at, version_of(f[2], f[3]), f[7] or '0', f[8] or '')
end

local function keep_structure(hash, structure)
  if redis.call('HSETNX', P .. 'structures', hash, structure) == 1 then
    redis.call('ZADD', P .. 'structures:order', redis.call('INCR', P .. 'structures:number'), hash)
  end
end

-- Counts an unfinished run of a flow's version, or counts it no longer.
local function count_unfinished(flow, hash, by)
  if redis.call('HINCRBY', P .. 'unfinished:' .. flow, hash, by) <= 0 then
    redis.call('HDEL', P .. 'unfinished:' .. flow, hash)
  end
end

local function count_open(kind, by)
  if redis.call('HINCRBY', P .. 'waits:kinds', kind, by) <= 0 then
    redis.call('HDEL', P .. 'waits:kinds', kind)
  end
end

-- Puts a wait into the indexes that follow from its row and its run's status.
local function place(wait_id, run_status)
  local f = redis.call('HMGET', wait_of(wait_id), 'run', 'status', 'n', 'due', 'scheduler', 'settled',
    'notifies', 'notified', 'schedule')
  local run_id, status, n, due = f[1], f[2], f[3], f[4]
  local is_open, is_ours = status == 'open', f[5] == ''
  local wakes_at = status == 'settled' and f[6] or is_open and is_ours and due
  if wakes_at then
    redis.call('ZADD', P .. 'wakes:' .. run_id, wakes_at, wait_id)
  else
    redis.call('ZREM', P .. 'wakes:' .. run_id, wait_id)
  end
  if run_status == 'halted' and is_open and is_ours and due then
    redis.call('ZADD', P .. 'timers', due, wait_id)
  else
    redis.call('ZREM', P .. 'timers', wait_id)
  end
  if is_open and ((f[7] == '1' and not f[8]) or (not is_ours and due and not f[9])) then
    redis.call('ZADD', P .. 'waits:untold', n, wait_id)
  else
    redis.call('ZREM', P .. 'waits:untold', wait_id)
  end
end

local function change_wait_status(wait_id, from, to, n, kind)
  redis.call('HSET', wait_of(wait_id), 'status', to)
  redis.call('ZREM', P .. 'waits:' .. from, wait_id)
  redis.call('ZADD', P .. 'waits:' .. to, n, wait_id)
  if from == 'open' then
    count_open(kind, -1)
  end
end

local function settle(wait_id, run_status, now, by, answer)
  local f = redis.call('HMGET', wait_of(wait_id), 'n', 'kind')
  redis.call('HSET', wait_of(wait_id), 'settled', now, 'by', by)
  if answer then
    redis.call('HSET', wait_of(wait_id), 'answer', answer)
  end
  change_wait_status(wait_id, 'open', 'settled', f[1], f[2])
  place(wait_id, run_status)
end

-- Settles what is due of a run by the clock; true if there was something.
local function settle_due(run_id, run_status, now)
  local has_settled = false
  for _, wait_id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'wakes:' .. run_id, '-inf', now)) do
    if redis.call('HGET', wait_of(wait_id), 'status') == 'open' then
      settle(wait_id, run_status, now, 'clock')
      has_settled = true
    end
  end
  return has_settled
end

-- A run's signals lie by its number, which no other run gets: those that were not taken by their own numbers, also of
-- each name, the number of each id, and a hash for each.
local function inbox_of(n)
  return P .. 'inbox:' .. n
end

local function untaken_of(n, name)
  return P .. 'inbox:' .. n .. ':of:' .. name
end

local function signal_of(n, number)
  return P .. 'signal:' .. n .. ':' .. whole(number)
end

-- Notes a signal as one that was not taken.
local function keep_untaken(n, number, name)
  redis.call('ZADD', inbox_of(n), number, number)
  redis.call('ZADD', untaken_of(n, name), number, number)
end

-- Notes a signal as taken by the put of a sequence; false if it was before.
local function take(n, number, sequence)
  if redis.call('ZREM', inbox_of(n), number) == 0 then
    return false
  end
  redis.call('ZREM', untaken_of(n, redis.call('HGET', signal_of(n, number), 'name')), number)
  redis.call('HSET', signal_of(n, number), 'taken', sequence)
  redis.call('HDEL', signal_of(n, number), 'value')
  return true
end

-- Brings free signals of a run and its open waits for them together, of each name the oldest and the oldest, as
-- engine.settling says.
local function pair(run_id, n, run_status, now)
  local at = {}

  local function free(name)
    while true do
      at[name] = (at[name] or -1) + 1
      local number = redis.call('ZRANGE', untaken_of(n, name), at[name], at[name])[1]
      local had = number and redis.call('HGET', signal_of(n, number), 'wait')
      local status = had and redis.call('HGET', wait_of(had), 'status')
      if not status or status == 'closed' then
        return number
      end
    end
  end

  for _, wait_id in ipairs(redis.call('ZRANGE', P .. 'waits:unclosed:' .. run_id, 0, -1)) do
    local w = redis.call('HMGET', wait_of(wait_id), 'status', 'topic', 'due')
    if w[1] == 'open' and w[2] and string.sub(w[2], 1, 7) == 'signal:' and not (w[3] and tonumber(w[3]) <= tonumber(now))
    then
      local number = free(string.sub(w[2], 8))
      if number then
        redis.call('HSET', signal_of(n, number), 'wait', wait_id)
        settle(wait_id, run_status, now, 'answer', redis.call('HGET', signal_of(n, number), 'value'))
      end
    end
  end
end

-- Open waits for events by what they listen for, the topics of each prefix, and which event a node of a run had.
local function topic_of(topic)
  return P .. 'topic:' .. topic
end

local function tags_of(n)
  return P .. 'tags:' .. n
end

local function attributes_of(n)
  return P .. 'attributes:' .. n
end

local function had_of(n, path)
  return P .. 'had:' .. n .. ':' .. path
end

-- Notes, or notes no longer, that a wait listens for an event.
local function listen(wait_id, topic, prefix, n)
  if n then
    redis.call('ZADD', topic_of(topic), n, wait_id)
    redis.call('ZADD', P .. 'topics:' .. prefix, 0, topic)
  elseif redis.call('ZREM', topic_of(topic), wait_id) == 1 and redis.call('EXISTS', topic_of(topic)) == 0 then
    redis.call('ZREM', P .. 'topics:' .. prefix, topic)
  end
end

local function prefix_in(topic)
  local length = string.match(topic, '^event:(%d+):')
  return string.sub(topic, 1, 6 + #length + 1 + tonumber(length) + 1)
end

-- An id is an event's within its name: what stands for both.
local function event_of(name, id)
  return #name .. ':' .. name .. id
end

-- Settles a wait with an event, unless its node had that before; true if this did it.
local function give_event(wait_id, event, value, now)
  local w = redis.call('HMGET', wait_of(wait_id), 'run', 'path', 'status', 'due', 'topic')
  if w[3] ~= 'open' then
    listen(wait_id, w[5], prefix_in(w[5]), nil)
    return false
  end
  local f = redis.call('HMGET', row_of(w[1]), 'n', 'status')
  if w[4] and tonumber(w[4]) <= tonumber(now) or redis.call('SADD', had_of(f[1], w[2]), event) == 0 then
    return false
  end
  redis.call('SADD', P .. 'had:' .. f[1], w[2])
  settle(wait_id, f[2], now, 'answer', value)
  listen(wait_id, w[5], prefix_in(w[5]), nil)
  reckon(w[1])
  return true
end

