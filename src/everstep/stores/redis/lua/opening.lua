-- Part of the scripts that bring waits.
local function open_wait(run_id, run_status, fields)
  local wait_id = fields[2]
  local n = redis.call('INCR', P .. 'waits:number')
  redis.call('HSET', wait_of(wait_id), 'run', run_id, 'n', n, unpack(fields))
  local f = redis.call('HMGET', wait_of(wait_id), 'flow', 'kind', 'token', 'status')
  redis.call('ZADD', P .. 'waits', n, wait_id)
  redis.call('ZADD', P .. 'waits:' .. f[4], n, wait_id)
  redis.call('ZADD', P .. 'waits:flow:' .. f[1], n, wait_id)
  redis.call('ZADD', P .. 'waits:run:' .. run_id, n, wait_id)
  if f[4] ~= 'closed' then
    redis.call('ZADD', P .. 'waits:unclosed:' .. run_id, n, wait_id)
  end
  if f[3] then
    redis.call('HSET', P .. 'tokens', f[3], wait_id)
  end
  if f[4] == 'open' then
    count_open(f[2], 1)
  end
  place(wait_id, run_status)
end
