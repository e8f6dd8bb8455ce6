-- Removes a notice.
local function drop_notice(run_id, number)
  redis.call('UNLINK', P .. 'notice:' .. number)
  for _, index in ipairs({ '', ':pending', ':sent', ':dead', ':due', ':run:' .. run_id }) do
    redis.call('ZREM', P .. 'notices' .. index, number)
  end
end

-- Writes the notices that an act on a run means: each is an occasion, for whom, and what else is kept of it. Those that
-- name no notifier are for all who want to be told of the occasion. `told` says who that is.
local function tell_of(run_id, sequence, told, tells)
  local row, now = row_of(run_id), clock()
  local names = told and cjson.decode(told) or {}
  for _, one in ipairs(tells) do
    for _, notifier in ipairs(one.notifier and { one.notifier } or names[one.occasion] or {}) do
      local number = redis.call('INCR', P .. 'notices:number')
      local due = one.due or now
      redis.call('HSET', P .. 'notice:' .. number, 'run', run_id, 'number', number, 'notifier', notifier,
        'occasion', one.occasion, 'sequence', sequence, 'at', one.at or now, 'due_at', due, unpack(one.more or {}))
      redis.call('ZADD', P .. 'notices', number, number)
      redis.call('ZADD', P .. 'notices:pending', number, number)
      redis.call('ZADD', P .. 'notices:due', due, number)
      redis.call('ZADD', P .. 'notices:run:' .. run_id, number, number)
      redis.call('HSET', row, 'noticed', 1)
    end
  end
end
