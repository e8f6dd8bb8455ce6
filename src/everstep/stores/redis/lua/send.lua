-- Puts a signal into the inbox of a run, as engine.settling says; returns what became of it.
-- ARGV: run, id, name, value, how many may wait to be taken, a row of the audit log.
local run_id = ARGV[2]
local f = redis.call('HMGET', row_of(run_id), 'status', 'n')
local status, n = f[1], f[2]
if not status then
  return 'unknown_run'
elseif redis.call('HEXISTS', inbox_of(n) .. ':ids', ARGV[3]) == 1 then
  return 'same'
elseif FINAL[status] then
  return 'ended'
elseif redis.call('ZCARD', inbox_of(n)) >= tonumber(ARGV[6]) then
  return 'full'
end
local number = redis.call('HLEN', inbox_of(n) .. ':ids') + 1
redis.call('HSET', inbox_of(n) .. ':ids', ARGV[3], number)
redis.call('HSET', signal_of(n, number), 'id', ARGV[3], 'name', ARGV[4], 'value', ARGV[5], 'sent', clock(),
  'number', number)
keep_untaken(n, number, ARGV[4])
tell(ARGV[7])
pair(run_id, n, status, clock())
reckon(run_id)
announce()
return 'sent'
