-- Returns what the workers that are alive say of themselves.
local alive = redis.call('ZRANGEBYSCORE', P .. 'workers:until', '(' .. clock(), '+inf')
for k, worker in ipairs(alive) do
  alive[k] = redis.call('HGET', P .. 'workers', worker)
end
return alive
