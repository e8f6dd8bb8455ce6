-- Judges each commit alone, then keeps the accepted ones. Nothing is written before all are judged, so what is
-- refused as a whole leaves no trace.
-- ARGV, for each commit: run, sequence, checkpoint, base, epoch, flags, record, and what else it brings.
local EACH = 8
local commits = (#ARGV - 1) / EACH
local runs, opened, verdicts, brings = {}, {}, {}, {}

local function known(run_id)
  local run = runs[run_id]
  if run == nil then
    local f = redis.call('HMGET', row_of(run_id), 'epoch', 'head', 'id', 'signal', 'forked', 'trimmed')
    run = f[1] and {
      epoch = f[1], head = tonumber(f[2]), id = f[3], stop_request = f[4],
      first = tonumber(f[5] or 0) + 1, trimmed = tonumber(f[6] or 0), ids = {},
    } or false
    runs[run_id] = run
  end
  return run
end

-- The id of the checkpoint that a run has, or will have, at a sequence.
local function id_at(run_id, run, sequence)
  if run.ids[sequence] then
    return run.ids[sequence]
  end
  if sequence < run.first or sequence > run.head then
    return nil
  end
  local record = redis.call('LINDEX', P .. 'chain:' .. run_id, sequence - run.first)
  if record then
    local high, low = string.byte(record, 2, 3)
    return string.sub(record, 4, 3 + high * 256 + low)
  end
end

local function judge_admission(run_id, sequence, id, base, admission)
  local run = known(run_id)
  if run then
    return id_at(run_id, run, run.first) == id and 'again' or 'exists'
  end
  if redis.call('EXISTS', tomb_of(run_id)) == 1 then
    return 'exists'
  end
  local forked = admission.forked
  if forked then
    local parent = known(admission.parent or '')
    if not parent then
      return 'unknown_run'
    end
    if id_at(admission.parent, parent, forked) ~= base or forked < parent.trimmed or sequence ~= forked + 1 then
      return 'moved'
    end
  end
  return 'accepted'
end

local function judge(run_id, sequence, id, base, epoch, flags, is_told)
  local run = known(run_id)
  if not run then
    return 'unknown_run'
  end
  local follows = run.head + 1 == sequence and run.id == base
  if not follows and id_at(run_id, run, sequence) == id then
    return 'again'
  elseif is_told or run.epoch ~= epoch then
    return 'fenced'
  elseif not follows then
    return 'moved'
  elseif run.stop_request and not string.find(flags, 'i', 1, true) then
    return 'signalled'
  end
  return 'accepted'
end

for k = 1, commits do
  local at = 1 + (k - 1) * EACH
  local run_id, sequence, id, base = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  local more = ARGV[at + 8] ~= '' and cmsgpack.unpack(ARGV[at + 8]) or nil
  local admission = more and more.admission
  local verdict
  if admission then
    verdict = judge_admission(run_id, sequence, id, base, admission)
  else
    verdict = judge(run_id, sequence, id, base, ARGV[at + 5], ARGV[at + 6], more and is_told(more.audit))
  end
  if verdict == 'accepted' then
    local run = runs[run_id]
    if admission then
      run = { epoch = ARGV[at + 5], stop_request = false, first = sequence, trimmed = 0, ids = {} }
      runs[run_id] = run
    end
    run.head, run.id, run.ids[sequence] = sequence, id, id
    if more and more.ends_stop_request then
      run.stop_request = false
    end
    for _, wait in ipairs(more and more.waits or {}) do
      local wait_id = wait[2]
      if opened[wait_id] or redis.call('EXISTS', wait_of(wait_id)) == 1 then
        return redis.error_reply('WAITEXISTS ' .. wait_id)
      end
      opened[wait_id] = true
    end
    brings[k] = more or false
  end
  verdicts[k] = verdict
end

local function admit(run_id, sequence, epoch, a)
  local row = row_of(run_id)
  local n = redis.call('INCR', P .. 'runs:number')
  redis.call('HSET', row, 'n', n, 'epoch', epoch, 'claimed', sequence, unpack(a.fields))
  if a.owner then
    local expires = whole(tonumber(clock()) + a.ttl)
    redis.call('HSET', row, 'owner', a.owner, 'expires', expires)
    if a.process then
      redis.call('HSET', row, 'process', a.process)
    end
    note_lease(run_id, expires, a.flow, redis.call('HGET', row, 'group'))
  end
  redis.call('ZADD', P .. 'runs', n, run_id)
  redis.call('ZADD', P .. 'flow:' .. a.flow, n, run_id)
  redis.call('ZADD', P .. 'status:running', n, run_id)
  redis.call('ZADD', P .. 'status:running:' .. a.flow, n, run_id)
  if a.parent then
    redis.call('ZADD', P .. 'forks:' .. a.parent, n, run_id)
    if a.forked then
      redis.call('ZADD', P .. 'pins:' .. a.parent, a.forked, run_id)
    end
  end
  if a.starter then
    redis.call('ZADD', started_of(a.starter), n, run_id)
  end
  local told = a.told or (a.forked and redis.call('HGET', row_of(a.parent), 'told'))
  if told then
    redis.call('HSET', row, 'told', told)
  end
  keep_structure(a.hash, a.structure)
  count_unfinished(a.flow, a.hash, 1)
end

local function close_wait(run_id, wait_id)
  if redis.call('ZREM', P .. 'waits:unclosed:' .. run_id, wait_id) == 1 then
    local f = redis.call('HMGET', wait_of(wait_id), 'status', 'n', 'kind', 'topic')
    if f[4] and string.sub(f[4], 1, 6) == 'event:' then
      listen(wait_id, f[4], prefix_in(f[4]), nil)
    end
    change_wait_status(wait_id, f[1], 'closed', f[2], f[3])
    place(wait_id, '')
  end
end

-- What a status does to the run is told: whether it gives the lease back, ends a stop request, closes the waits.
local function change_status(run_id, sequence, more)
  local row, status = row_of(run_id), more.status
  local f = redis.call('HMGET', row, 'status', 'flow', 'hash', 'n', 'group', 'told')
  local old, flow, hash, n = f[1], f[2], f[3], f[4]
  if old ~= status then
    if f[6] and status ~= 'running' then
      tell_of(run_id, sequence, f[6], { { occasion = status, at = more.ended } })
      for _, number in ipairs(FINAL[status] and redis.call('ZRANGE', P .. 'notices:run:' .. run_id, 0, -1) or {}) do
        local notice = redis.call('HMGET', P .. 'notice:' .. number, 'occasion', 'sent_at')
        if notice[1] == 'overdue' and not notice[2] then
          drop_notice(run_id, number) -- one that has ended is not overdue
        end
      end
    end
    redis.call('ZREM', P .. 'status:' .. old, run_id)
    redis.call('ZREM', P .. 'status:' .. old .. ':' .. flow, run_id)
    redis.call('ZADD', P .. 'status:' .. status, n, run_id)
    redis.call('ZADD', P .. 'status:' .. status .. ':' .. flow, n, run_id)
    if FINAL[status] and not FINAL[old] then
      count_unfinished(flow, hash, -1)
    elseif FINAL[old] and not FINAL[status] then
      count_unfinished(flow, hash, 1)
    end
    redis.call('HSET', row, 'status', status)
  end
  if more.ended then
    redis.call('HSET', row, 'ended', more.ended)
  else
    redis.call('HDEL', row, 'ended')
  end
  if more.ends_stop_request then
    redis.call('HDEL', row, 'signal')
  end
  if more.gives_back then
    give_back(run_id, flow, f[5])
  end
  for _, wait_id in ipairs(redis.call('ZRANGE', P .. 'waits:unclosed:' .. run_id, 0, -1)) do
    if more.closes_waits then
      close_wait(run_id, wait_id)
    else
      place(wait_id, status)
    end
  end
end

local function adopt(run_id, sequence, to)
  local row = row_of(run_id)
  local f = redis.call('HMGET', row, 'status', 'flow', 'hash', 'priority', 'group', 'n')
  keep_structure(to.hash, to.structure)
  line_up(run_id, f[6], nil, version_of(f[2], f[3]), f[4] or '0', f[5] or '')
  if not FINAL[f[1]] then
    count_unfinished(f[2], f[3], -1)
    count_unfinished(f[2], to.hash, 1)
  end
  redis.call('HSET', row, 'version', to.version, 'hash', to.hash, 'adopted', sequence)
end

-- Settles a wait with the oldest kept event that it is for, and that its node has not had.
local function hear(run_id, n, one)
  local now, path = clock(), redis.call('HGET', wait_of(one.wait), 'path')
  for _, event in ipairs(redis.call('ZRANGE', P .. 'events:' .. one.name, 0, -1)) do
    local key = P .. 'event:' .. event
    local ends, fits = redis.call('HGET', key, 'ends'), true
    for field, hash in pairs(one.hashes) do
      fits = fits and redis.call('HGET', key, 'field:' .. field) == hash
    end
    if ends and tonumber(ends) > tonumber(now) and fits and redis.call('SISMEMBER', had_of(n, path), event) == 0 then
      give_event(one.wait, event, redis.call('HGET', key, 'value'), now)
      return
    end
  end
end

local function follow(run_id, sequence, more)
  if more.tells then
    tell_of(run_id, sequence, redis.call('HGET', row_of(run_id), 'told'), more.tells)
  end
  if more.waits or more.closed then
    local run_status = redis.call('HGET', row_of(run_id), 'status')
    for _, fields in ipairs(more.waits or {}) do
      open_wait(run_id, run_status, fields)
    end
    for _, wait_id in ipairs(more.closed or {}) do
      close_wait(run_id, wait_id)
    end
  end
  if more.status and not (more.admission and more.status == 'running') then
    change_status(run_id, sequence, more)
  end
  if more.adopts then
    adopt(run_id, sequence, more.adopts)
  end
  if more.taken or more.pairs then
    local f = redis.call('HMGET', row_of(run_id), 'n', 'status')
    for _, signal_id in ipairs(more.taken or {}) do
      local number = redis.call('HGET', inbox_of(f[1]) .. ':ids', signal_id)
      if number then
        take(f[1], number, sequence)
      end
    end
    if more.pairs then
      pair(run_id, f[1], f[2], clock())
    end
    for _, one in ipairs(more.listening or {}) do
      if redis.call('HGET', wait_of(one.wait), 'status') == 'open' then
        listen(one.wait, one.topic, one.prefix, redis.call('HGET', wait_of(one.wait), 'n'))
        hear(run_id, f[1], one)
      end
    end
  end
  if more.audit then
    keep_audit(more.audit)
  end
  if more.tags or more.attributes then
    local n = redis.call('HGET', row_of(run_id), 'n')
    if more.tags then
      redis.call('HSET', tags_of(n), unpack(more.tags))
    end
    if more.attributes then
      redis.call('HSET', attributes_of(n), unpack(more.attributes))
    end
  end
  if more.undoing then
    redis.call('HSET', row_of(run_id), 'undoing', more.undoing)
    redis.call('HDEL', row_of(run_id), 'signal')
  end
  if more.had then
    local n = redis.call('HGET', row_of(run_id), 'n')
    for _, had in ipairs(more.had) do
      redis.call('SADD', had_of(n, had[1]), event_of(had[2], had[3]))
      redis.call('SADD', P .. 'had:' .. n, had[1])
    end
  end
  reckon(run_id)
end

local has_written = false
for k = 1, commits do
  local more = brings[k]
  if more ~= nil then
    has_written = true
    local at = 1 + (k - 1) * EACH
    local run_id, sequence = ARGV[at + 1], ARGV[at + 2]
    if more and more.admission then
      admit(run_id, sequence, ARGV[at + 5], more.admission)
    end
    redis.call('RPUSH', P .. 'chain:' .. run_id, ARGV[at + 7])
    redis.call('HSET', row_of(run_id), 'head', sequence, 'id', ARGV[at + 3])
    if string.find(ARGV[at + 6], 'k', 1, true) then
      redis.call('ZADD', P .. 'keyframes:' .. run_id, sequence, sequence)
    end
    if more then
      follow(run_id, sequence, more)
    end
  end
end
if has_written then
  announce()
end
return verdicts
