-- What every script begins with: the names of keys, and how a run's places in the indexes follow from its row.
-- A row is a hash; a field that is not there is none. Times are whole microseconds since 1970, as text.
local P = KEYS[1]
local FINAL = { completed = true, failed = true, cancelled = true, abandoned = true }

local function whole(number)
  return string.format('%.0f', number)
end

-- The time of whoever keeps the data, unless a test brings its own.
local function clock()
  if ARGV[1] ~= '' then
    return ARGV[1]
  end
  local at = redis.call('TIME')
  return at[1] .. string.rep('0', 6 - #at[2]) .. at[2]
end

-- Others hear that there is something new; nobody needs to be listening.
local function announce()
  redis.call('PUBLISH', P .. 'changes', ARGV[2])
end

local function row_of(run_id)
  return P .. 'run:' .. run_id
end

local function wait_of(wait_id)
  return P .. 'wait:' .. wait_id
end

local function due_of(flow, hash)
  return P .. 'due:' .. #hash .. ':' .. hash .. flow
end

-- Says since when, or from when on, somebody should drive a run: the time in the index of its flow's due runs.
local function reckon(run_id)
  local f = redis.call('HMGET', row_of(run_id), 'status', 'flow', 'hash', 'created', 'expires', 'signal')
  local status, expires, at = f[1], f[5], nil
  if not FINAL[status] then
    if f[6] then
      at = '-inf'
    elseif status == 'running' then
      at = f[4]
    else
      at = redis.call('ZRANGE', P .. 'wakes:' .. run_id, 0, 0, 'WITHSCORES')[2]
    end
    if at and expires and (status == 'running' or at == '-inf' or tonumber(expires) > tonumber(at)) then
      at = expires
    end
  end
  if at then
    redis.call('ZADD', due_of(f[2], f[3]), at, run_id)
  else
    redis.call('ZREM', due_of(f[2], f[3]), run_id)
  end
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
