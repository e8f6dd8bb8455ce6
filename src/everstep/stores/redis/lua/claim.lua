-- Gives leases that were decided on what rows said, unless a row has changed since. Returns the rows, or false.
-- ARGV: settle what is due, then for each: run; epoch, owner, expiry and head as they were; the new lease.
local EACH, given = 10, {}
local now, has_written = clock(), false
for at = 3, #ARGV - EACH, EACH do
  local run_id, row = ARGV[at + 1], row_of(ARGV[at + 1])
  local f = redis.call('HMGET', row, 'epoch', 'owner', 'expires', 'head', 'status')
  local owner, epoch, expires, process, takeovers = unpack(ARGV, at + 6, at + 10)
  local is_same = f[1] == ARGV[at + 2] and (f[2] or '') == ARGV[at + 3] and (f[3] or '') == ARGV[at + 4]
    and f[4] == ARGV[at + 5]
  if is_same then
    redis.call('HSET', row, 'owner', owner, 'epoch', epoch, 'expires', expires, 'takeovers', takeovers,
      'claimed', f[4])
    if process ~= '' then
      redis.call('HSET', row, 'process', process)
    else
      redis.call('HDEL', row, 'process')
    end
    if ARGV[3] == '1' then
      settle_due(run_id, f[5], now)
    end
    reckon(run_id)
    has_written = true
  end
  -- One that is there already was given before the reply was lost.
  local is_given = is_same or f[1] == epoch and f[2] == owner
  given[#given + 1] = is_given and redis.call('HGETALL', row) or false
end
if has_written then
  announce()
end
return given
