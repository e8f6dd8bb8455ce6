-- Returns the format of what lies under this prefix, after noting ours if nothing does, and the server's version
-- and time. ARGV: format, may create.
local found = redis.call('GET', P .. 'format')
if not found and ARGV[4] == '1' then
  redis.call('SET', P .. 'format', ARGV[3])
  found = ARGV[3]
end
return { found, redis.REDIS_VERSION_NUM or 0, table.concat(redis.call('TIME'), '.') }
